"""The Flask extension: it makes an app's receiver, engine and commands of its configuration."""

from billhook.extension.extension import ENVIRON as ENVIRON
from billhook.extension.extension import Billhook as Billhook
from billhook.extension.extension import configured_scheme as configured_scheme
from billhook.extension.extension import default_source as default_source
from billhook.extension.extension import get_settings as get_settings
from billhook.extension.extension import get_state as get_state
