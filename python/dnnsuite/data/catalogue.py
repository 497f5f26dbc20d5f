# SPDX-License-Identifier: MIT
"""Data sets that jobs read: where each lies, its size, its licence, and the archives that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import InvalidArgument, did_you_mean, some_of
from . import (
    cifar,
    detection,
    imagenet,
    mnist,
    photographs,
    point_clouds,
    ratings,
    super_resolution,
    translation,
    words,
)


@dataclass(frozen=True)
class Archive:
    """A file to fetch.

    Attributes:
        md5: its hash, and `stated_by` the publisher of the hash; both empty where none is published: it is not
            checked then.
        into: the folder below the data set's that it is unpacked in.
    """

    name: str
    md5: str = ""
    stated_by: str = ""
    into: str = "."

    @property
    def hash_text(self) -> str:
        """The hash and who states it, or that there is none."""
        return f"MD5 {self.md5} ({self.stated_by})" if self.md5 else "unverified: nobody publishes a hash"


@dataclass(frozen=True)
class DataSet:
    """A data set.

    Attributes:
        folder: folder that `prepare` makes below the dataroot.
        find: the folder of a complete set below a dataroot, or None.
        layout: files below `folder`, a line each.
        size: size of the archives and of the files, in words.
        page: page of its owner with the download.
        without: data that jobs read instead, in words.
    """

    name: str
    title: str
    folder: str
    find: Callable[[Path], Path | None]
    layout: tuple[str, ...]
    size: str
    licence: str
    page: str
    archives: tuple[Archive, ...]
    jobs: tuple[str, ...]
    without: str

    @property
    def checked(self) -> str:
        """`MD5` if all archives are checked by a published hash, `unverified` if not, `-` where there is no archive."""
        if not self.archives:
            return "-"
        return "MD5" if all(archive.md5 for archive in self.archives) else "unverified"


def _imagenet(root: Path) -> Path | None:
    """Return a folder of classes; not the dataroot itself, in which any folder with a picture would look like one."""
    found = imagenet.find("auto", root)
    return found if found != root else None


def _mnist(root: Path) -> Path | None:
    parts = [[mnist.files_of(root / name, part) for part in ("train", "t10k")] for name in mnist.FOLDERS]
    return next((root / name for name, both in zip(mnist.FOLDERS, parts, strict=True) if all(both)), None)


def _with(folders: tuple[str, ...], *choices: tuple[str, ...]) -> Callable[[Path], Path | None]:
    """Make a function that finds the first folder below a dataroot that has all files of one of the choices."""

    def find(root: Path) -> Path | None:
        for folder in (root / name for name in folders):
            if any(all((folder / name).is_file() for name in names) for names in choices):
                return folder
        return None

    return find


def _bsds(root: Path) -> Path | None:
    found = super_resolution.files_of(root)
    return found[0][0].parent.parent if found else None


def _movielens(root: Path) -> Path | None:
    return next(((root / name).parent for name in ratings.FILES if (root / name).is_file()), None)


def _wikitext(root: Path) -> Path | None:
    found = words.files_of(root)
    return found[0] if found else None


_CIFAR10 = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_LISTED = (
    DataSet(
        "imagenet", "ImageNet, ILSVRC 2012", "ImageNet", _imagenet,
        ("train/<class>/*.JPEG   1,281,167 images in 1000 folders", "val/<class>/*.JPEG     50,000 images"),
        "155 GB", "non-commercial research and education, after registration", "image-net.org",
        (
            Archive("ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e", "image-net.org", "train"),
            Archive("ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622", "image-net.org", "val"),
        ),
        ("loader", "convnet", "convnet_fp16", "convnet_distributed", "convnet_distributed_fp16", "dcgan", "dcgan_all",
         "fast_style", "imagenet-resnet50"),
        "parts of photographs that scikit-image ships, else noise; generated JPEG files where a loader is measured",
    ),
    DataSet(
        "mnist", "MNIST, handwritten digits", "mnist", _mnist,
        ("train-images-idx3-ubyte(.gz)   60,000", "train-labels-idx1-ubyte(.gz)",
         "t10k-images-idx3-ubyte(.gz)    10,000",
         "t10k-labels-idx1-ubyte(.gz)"),
        "12 MB", "CC BY-SA 3.0", "yann.lecun.com/exdb/mnist",
        (
            Archive("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "torchvision"),
            Archive("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "torchvision"),
            Archive("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "torchvision"),
            Archive("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "torchvision"),
        ),
        ("vae", "dit", "vit", "convnext", "dino", "unet", "detector"),
        "Debian's dataset-fashion-mnist, else scikit-learn's digits, else drawn",
    ),
    DataSet(
        "cifar10", "CIFAR-10", "cifar-10-batches-bin",
        _with(cifar.CIFAR10_FOLDERS, tuple(f"{name}.bin" for name in _CIFAR10), _CIFAR10),
        ("data_batch_{1..5}.bin   50,000", "test_batch.bin          10,000"),
        "170 MB", "not stated by its authors", "cs.toronto.edu/~kriz/cifar.html",
        (Archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "its authors", ".."),),
        ("mobilenet_v3_small", "mobilenet_v3_large", "resnet"), "what mnist finds, in three channels",
    ),
    DataSet(
        "cifar100", "CIFAR-100", "cifar-100-binary",
        _with(cifar.FOLDERS, ("train.bin", "test.bin"), ("train", "test")),
        ("train.bin   50,000", "test.bin    10,000"),
        "170 MB", "not stated by its authors", "cs.toronto.edu/~kriz/cifar.html",
        (Archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "its authors", ".."),),
        ("dnnsuite train",), "scikit-learn's digits, else drawn",
    ),
    DataSet(
        "bsds500", "Berkeley Segmentation Data Set 500", "bsds500", _bsds,
        ("BSR/BSDS500/data/images/train/*.jpg   200", "BSR/BSDS500/data/images/test/*.jpg    200"),
        "70 MB", "non-commercial research and education", "eecs.berkeley.edu/Research/Projects/CS/vision/bsds",
        (Archive("BSR_bsds500.tgz"),), ("reso",), "tiles of photographs that scikit-image ships, else noise",
    ),
    DataSet(
        "wmt16", "WMT16 English-German in byte-pair pieces", "wmt16",
        _with(translation.FOLDERS, (translation.VOCABULARY, translation.SOURCE, translation.TARGET)),
        (f"{translation.VOCABULARY}", f"{translation.SOURCE}   4.5 M sentences", f"{translation.TARGET}"),
        "13 GB", "that of its corpora, for research", "statmt.org/wmt16, prepared as MLPerf's rnn_translator does",
        (), ("translator",), "sentences drawn with lengths like theirs",
    ),
    DataSet(
        "coco", "COCO 2017", "coco", partial(detection.find, "auto"),
        ("annotations/instances_train2017.json", "train2017/*.jpg   118,287"),
        "19 GB", "CC BY 4.0 (annotations); each image its own", "cocodataset.org",
        (
            Archive("train2017.zip", "cced6f7f71b7629ddf16f17bbcfab6b2", "MLPerf and others"),
            Archive("annotations_trainval2017.zip", "f4bbac642086de4f52a3fdda2de5fa2c", "MLPerf and others"),
        ),
        ("ssd",), "coloured rectangles",
    ),
    DataSet(
        "ml-20m", "MovieLens 20M", "ml-20m", _movielens, ("ratings.csv   20,000,263 ratings",),
        "190 MB", "for research, not to be redistributed", "grouplens.org/datasets/movielens/20m",
        (Archive("ml-20m.zip", "cd245b17a1ae2cc31bb14903e1204af3", "its authors", ".."),),
        ("recom",), "pairs drawn by the Zipf-Mandelbrot law",
    ),
    DataSet(
        "wikitext-2", "WikiText-2", "wikitext-2", _wikitext,
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        "13 MB", "CC BY-SA 3.0", "the site of its authors (Merity et al. 2016)",
        (Archive("wikitext-2-v1.zip", "542ccefacc6c27f945fb54453812b3cd", "torchtext", ".."),),
        ("wlm", "wlmfp16", "bert", "transformer"), "the documentation that Python ships, else drawn",
    ),
    DataSet(
        "shapenet", "ShapeNet part, shapes of 16 categories", point_clouds.SHAPENET_FOLDERS[1],
        _with(point_clouds.SHAPENET_FOLDERS[::-1], point_clouds.SHAPENET_MARKS),
        ("synsetoffset2category.txt", "train_test_split/shuffled_{train,val,test}_file_list.json",
         "<category>/points/*.pts         16,881 shapes", "<category>/points_label/*.seg   a part for each point"),
        "635 MB", "ShapeNet's terms of use: research, not to be redistributed", "shapenet.cs.stanford.edu/ericyi",
        (Archive(f"{point_clouds.SHAPENET_FOLDERS[1]}.zip", into=".."),),
        ("pointnet_cls", "pointnet_seg"), "surfaces of solids, drawn",
    ),
    DataSet(
        "lsun", "LSUN, bedrooms", photographs.LSUN_FOLDER, photographs.find_lsun,
        (f"{photographs.LSUN_DATABASE}/data.mdb   3,033,042 pictures; needs the package lmdb",
         f"{photographs.LSUN_PICTURES}/*.webp                or those, exported"),
        "43 GB", "for research, as its authors say", "yf.io/lsun",
        (Archive(f"{photographs.LSUN_DATABASE}.zip", "f2c5d904a82a6295dbdccb322b4b0a99", "HFTA"),),
        ("dnnsuite workflow dcgan",), "parts of photographs that scikit-image ships, else noise",
    ),
)  # fmt: skip
DATA_SETS: Mapping[str, DataSet] = {each.name: each for each in _LISTED}


def data_set(name: str) -> DataSet:
    """Find a data set by its name.

    Raises:
        InvalidArgument: there is none of this name.
    """
    if name not in DATA_SETS:
        near = did_you_mean(name, DATA_SETS)
        raise InvalidArgument(f"no data set {name!r}{near}; available: {some_of(DATA_SETS, '`dnnsuite data list`')}")
    return DATA_SETS[name]
