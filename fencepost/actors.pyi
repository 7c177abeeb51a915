from actors import *
from actors import errors as errors
