import sys

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from sorites.core.errors import SoritesError
from sorites.optics.convolve import Kernel, check_library, sweep

BORDER = {"zeros": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101}
MODE = {"zeros": "constant", "reflect": "mirror"}


def make_image(height=40, width=31, channels=3, seed=0):
    return np.random.default_rng(seed).random((height, width, channels), dtype=np.float32)


def taps(*shape, seed=1):
    made = np.random.default_rng(seed).random(shape)
    return made / made.sum((-2, -1), keepdims=True)


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
@pytest.mark.parametrize("shape", [(25, 25), (3, 3), (1, 1), (4, 7), (24, 10)])
def test_equals_opencv(padding, shape):
    image, kernel = make_image(), taps(*shape)
    (ours,) = sweep(image, [kernel], padding)
    theirs = cv2.filter2D(image, -1, kernel, borderType=BORDER[padding])
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert ours.dtype == np.float32


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 27),
    st.integers(1, 27),
    st.sampled_from(["zeros", "reflect"]),
)
def test_equals_scipy_at_any_size(height, width, rows, cols, padding):
    image, kernel = make_image(height, width), taps(rows, cols)
    if padding == "zeros" and (height < rows or width < cols):
        with pytest.raises(SoritesError, match="smaller than the kernel"):
            sweep(image, [kernel], padding)
        return
    (ours,) = sweep(image, [kernel], padding)
    theirs = ndimage.correlate(image.astype(float), kernel[..., None], mode=MODE[padding])
    np.testing.assert_allclose(ours, theirs, atol=3e-6)


def test_flip_is_true_convolution():
    image, kernel = make_image(), taps(5, 9)
    (ours,) = sweep(image, [kernel], flip=True)
    np.testing.assert_allclose(ours, ndimage.convolve(image, kernel[..., None], mode="constant"), atol=2e-6)


def test_each_channel_has_its_kernel_and_kernels_of_many_sizes_share_a_sweep():
    image, kernels = make_image(), [taps(3, 25, 25), taps(3, 3, 5), taps(7, 7)]
    for ours, kernel in zip(sweep(image, kernels, "reflect"), kernels, strict=True):
        for channel in range(3):
            alone = cv2.filter2D(image[..., channel], -1, kernel[channel] if kernel.ndim == 3 else kernel)
            np.testing.assert_allclose(ours[..., channel], alone, atol=2e-6)


def test_a_kept_kernel_serves_images_of_other_sizes():
    kernel = Kernel(taps(9, 9))
    for size in [(40, 31), (64, 64), (40, 31)]:
        image = make_image(*size)
        assert np.array_equal(next(sweep(image, [kernel])), next(sweep(image, [kernel.taps[0]])))
        assert np.array_equal(
            next(sweep(image[..., :1], [kernel]))[..., 0], next(sweep(image[..., :1], [taps(9, 9)]))[..., 0]
        )


def test_the_image_is_left_alone_and_no_kernels_give_no_images():
    image = make_image()
    before = image.copy()
    assert list(sweep(image, [])) == []
    next(sweep(image, [taps(25, 25)]))
    assert np.array_equal(image, before)


@pytest.mark.parametrize(
    ("image", "kernel", "padding", "says"),
    [
        (make_image(), taps(3, 3), "wrap", "zeros or reflect"),
        (make_image().astype(float), taps(3, 3), "zeros", "float32"),
        (make_image()[..., 0], taps(3, 3), "zeros", "H x W x C"),
        (make_image(), np.full((3, 3), np.nan), "zeros", "finite"),
        (make_image(), np.zeros((2, 2, 3, 3)), "zeros", "taps"),
        (make_image(), np.zeros((0, 3)), "zeros", "taps"),
        (make_image(), taps(2, 3, 3), "zeros", "got 2"),
    ],
)
def test_bad_input_is_a_clear_error(image, kernel, padding, says):
    with pytest.raises(SoritesError, match=says):
        list(sweep(image, [kernel], padding))


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("library", "package"), [("torch", "torch"), ("ducc", "ducc0")])
def test_other_libraries_give_the_same_to_rounding_and_no_kernel_depends_on_the_others(
    padding, flip, library, package
):
    pytest.importorskip(package)
    rng = np.random.default_rng(5)
    image = rng.random((37, 52, 3), dtype=np.float32)
    kernels = [Kernel(taps / taps.sum()) for taps in rng.random((3, 3, 9, 9))]
    ours = list(sweep(image, kernels, padding, flip=flip))
    theirs = list(sweep(image, kernels, padding, flip=flip, library=library))
    for one, other, kernel in zip(ours, theirs, kernels, strict=True):
        assert np.abs(one - other).max() < 2e-6
        (alone,) = sweep(image, [kernel], padding, flip=flip, library=library)
        assert np.array_equal(alone, other)


@pytest.mark.parametrize(("library", "package"), [("torch", "torch"), ("ducc", "ducc0")])
def test_a_missing_library_is_answered_with_the_command_that_installs_it(monkeypatch, library, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.fft", None)
    with pytest.raises(SoritesError, match=rf"pip install 'sorites\[{library}\]'"):
        check_library("coma", library)


def test_torch_transforms_on_one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        used = []
        real = torch.fft.irfft2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torch.fft, "irfft2", lambda *a, **k: used.append(torch.get_num_threads()) or real(*a, **k)
            )
            next(sweep(make_image(), [taps(5, 5)], library="torch"))
        assert (used, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
