"""The methods, one module each: a function of a task and of the tokens to recover."""

from .bisection import bisection, ranking
from .by_basis import by_basis
from .forced import forced
from .parallel import parallel
from .single import single
from .top_n import top_n

__all__ = ["bisection", "by_basis", "forced", "parallel", "ranking", "single", "top_n"]
