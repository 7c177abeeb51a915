from world import *
from world import errors as errors
from world import events as events
