"""A torch module that blurs images with one kernel each; TorchScript can save it for other programs."""

import torch
from torch import Tensor
from torch.nn import functional


class Blur(torch.nn.Module):
    """Cross-correlates N x 3 x H x W images with kernels K x 3 x side x side (odd side).

    Args:
        taps: The kernels.
        reflect: Mirror the border without repeating the edge; otherwise it is black.
    """

    taps: Tensor

    def __init__(self, taps: Tensor, reflect: bool) -> None:
        super().__init__()
        self.register_buffer("taps", taps)
        self.mode = "reflect" if reflect else "constant"

    def forward(self, images: Tensor, which: Tensor) -> Tensor:
        """Return the blurred images; ``which`` has the number of the kernel of each image."""
        if images.dim() != 4 or images.shape[1] != 3 or not images.is_floating_point():
            raise ValueError(
                f"expected images as floats of shape (N, 3, height, width), got shape {images.shape}, floats:"
                f" {images.is_floating_point()}"
            )
        if which.dim() != 1 or which.shape[0] != images.shape[0]:
            raise ValueError(f"expected one kernel number per image, got shape {which.shape}")
        margin = self.taps.shape[3] // 2
        number, height, width = images.shape[0], images.shape[2], images.shape[3]
        padded = functional.pad(images, [margin, margin, margin, margin], mode=self.mode)
        weights = self.taps[which].to(images.dtype)
        planes = padded.reshape(1, number * 3, height + 2 * margin, width + 2 * margin)
        kernels = weights.reshape(number * 3, 1, weights.shape[2], weights.shape[3])
        blurred = functional.conv2d(planes, kernels, groups=number * 3)
        return blurred.reshape(number, 3, height, width)
