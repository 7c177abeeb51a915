from actors import *
from actors import activity as activity
from actors import durations as durations
from actors import errors as errors
from actors import failures as failures
from actors import models as models
from actors import replaying as replaying
from actors import watch as watch
from actors import webhooks as webhooks
