from bus import *
from bus import errors as errors
