from actors import *
