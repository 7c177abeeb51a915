from actors import *
from actors import durations as durations
from actors import errors as errors
from actors import failures as failures
from actors import watch as watch
