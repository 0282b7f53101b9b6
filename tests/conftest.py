"""One torch thread for each worker: the tests' matrices are small, and two workers share two cores."""

import torch

torch.set_num_threads(1)
