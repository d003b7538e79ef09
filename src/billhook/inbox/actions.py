"""What operators did: the names that programs of users import."""

from billhook.inbox.operating.actions import Action as Action
from billhook.inbox.operating.actions import ActionRecorder as ActionRecorder
from billhook.inbox.operating.actions import list_actions as list_actions
from billhook.inbox.operating.actions import recorded as recorded
