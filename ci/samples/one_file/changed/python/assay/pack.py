import numpy as np

from ._errors import PackError


# ---- arrays --
kOne = 1
