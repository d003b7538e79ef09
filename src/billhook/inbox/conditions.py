"""What can be wrong with an inbox, and what of it holds: the names that programs of users import."""

from billhook.inbox.watching.conditions import CONDITIONS as CONDITIONS
from billhook.inbox.watching.conditions import Condition as Condition
from billhook.inbox.watching.conditions import Facts as Facts
from billhook.inbox.watching.conditions import Severity as Severity
from billhook.inbox.watching.judgement import HeldCondition as HeldCondition
from billhook.inbox.watching.judgement import Judgement as Judgement
from billhook.inbox.watching.judgement import judge as judge
