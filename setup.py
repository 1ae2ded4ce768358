"""Installation; every value comes from settings.ini."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

parser = ConfigParser()
parser.read("settings.ini", encoding="utf-8")
cfg = parser["DEFAULT"]

extras = {
    key.removesuffix("_requirements"): cfg[key].split()
    for key in cfg
    if key.endswith("_requirements")
}
for part in ("train", "medmnist", "peers"):      # the book trains, and its tests compare with what others published
    extras["dev"] += extras[part]
extras["book"] += extras["train"]       # and whoever downloads its notebooks runs it there
licenses = {"apache2": "Apache-2.0"}
stages = {"3": "3 - Alpha", "4": "4 - Beta", "5": "5 - Production/Stable"}


def carried():
    "What chapters and commands read besides the modules; it lies below `_book` as in the repository."
    beside = [Path("nbs", name) for name in ("book.mplstyle", "verdicts.csv", "promises.csv")]
    read = [*Path("studies").glob("*/*.*"), *Path("bench/rows").glob("[!.]*.*")]
    kinds = (".csv", ".npz", ".json", ".md")
    return [*beside, *sorted(path for path in read if path.suffix in kinds and path.name != "scores.npz")]


class BuildWithBook(build_py):
    """Copies them when a wheel is built. An editable install finds the checkout itself."""

    def run(self):
        super().run()
        for source in [] if self.editable_mode else carried():
            target = Path(self.build_lib, cfg["lib_name"], "_book", source)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=cfg["keywords"],
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    license=licenses[cfg["license"]],
    classifiers=[f"Development Status :: {stages[cfg['status']]}", f"Intended Audience :: {cfg['audience']}",
                 f"Natural Language :: {cfg['language']}", "Programming Language :: Python :: 3 :: Only",
                 "Typing :: Typed"],
    package_data={cfg["lib_name"]: ["py.typed"]},     # the mark for type checkers
    cmdclass={"build_py": BuildWithBook},
    packages=find_packages(include=[cfg["lib_name"], cfg["lib_name"] + ".*"]),
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        # how nbdev links `names` in the text to their documentation
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"],
    },
    zip_safe=False,
)
