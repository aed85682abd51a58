"""The files around the code agree with the code and with each other."""

import importlib.metadata
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import az_cv

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
SUPPORTED = [found[1] for text in PROJECT["classifiers"] if (found := CLASSIFIER.fullmatch(text))]


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def targets():
    """Return the targets that the Makefile has for people: words, not files."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def asked_of_make(script):
    """Return the targets that the lines of a shell script ask `make` for."""
    found = []
    script = re.sub(r"\$\{\{.*?\}\}", "expression", script)
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command = None
        for word in words:
            if set(word) <= set("();<>|&"):
                command = None
            elif command is None:
                command = None if "=" in word else word  # variables may stand before a command
            elif command == "make" and "=" not in word and not word.startswith("-"):
                found.append(word)
    return found


def versions(workflow):
    """Return every version of Python that a workflow names."""
    found = []
    for job in workflow["jobs"].values():
        found += job.get("strategy", {}).get("matrix", {}).get("python", [])
    for step in steps(workflow):
        version = step.get("with", {}).get("python-version", "${{")
        found += [] if version.startswith("${{") else [version]
    return found


def test_targets_are_found_in_scripts():
    script = "cd docs && FLAGS=1 make -s lint BIN=${{ matrix.bin }} types \\\n docs; echo make it"
    assert asked_of_make(script) == ["lint", "types", "docs"]
    assert asked_of_make("make test PYTEST_ARGS=\"-m 'not long'\"") == ["test"]
    assert {"test", "test-long"} <= targets()
    assert not {"PYTHON", ".PHONY", "VENV"} & targets()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_whole_and_asks_for_little(path):
    workflow = load(path)
    # YAML 1.1 reads the word `on` as True.
    assert {"name", True, "permissions", "concurrency", "jobs"} <= set(workflow)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, name
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step), step
        # Others' actions are pinned by their major version.
        assert re.search(r"@(release/)?v\d+$", step.get("uses", "@v1")), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_asks_make_for_targets_that_exist(path):
    asked = {target for step in steps(load(path)) for target in asked_of_make(step.get("run", ""))}
    assert asked <= targets()


def test_every_check_is_in_some_workflow():
    scripts = [step.get("run", "") for path in WORKFLOWS for step in steps(load(path))]
    asked = {target for script in scripts for target in asked_of_make(script)}
    assert {"test", "test-long", "lint", "types", "docs"} <= asked


def test_versions_of_python_agree():
    minors = [int(version.removeprefix("3.")) for version in SUPPORTED]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert PROJECT["requires-python"] == f">={SUPPORTED[0]}"
    tests = load(ROOT / ".github" / "workflows" / "tests.yml")
    assert tests["jobs"]["linux"]["strategy"]["matrix"]["python"] == SUPPORTED
    for path in WORKFLOWS:
        assert set(versions(load(path))) <= set(SUPPORTED), path.name


def test_the_documentation_is_built_with_a_supported_python():
    config = load(ROOT / ".readthedocs.yaml")
    assert config["build"]["tools"]["python"] in SUPPORTED
    assert (ROOT / config["sphinx"]["configuration"]).is_file()
    (command,) = config["build"]["jobs"]["install"]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert re.search(r"--group (\w+)", command)[1] in groups


def test_only_a_tag_is_published():
    rights = {
        (path.name, name): job
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if "write" in job.get("permissions", {}).values()
    }
    assert list(rights) == [("package.yml", "publish")]
    publish = rights["package.yml", "publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert set(publish["needs"]) == {"build", "tests"}


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.name != "config.yml"], ids=lambda path: path.name
)
def test_form_is_whole(path):
    form = load(path)
    assert form["name"] and form["description"]
    questions = [element for element in form["body"] if element["type"] != "markdown"]
    names = [question["id"] for question in questions]
    assert len(names) == len(set(names))
    assert all(question["attributes"]["label"] for question in questions)
    assert any(question.get("validations", {}).get("required") for question in questions)


def test_addresses_agree():
    urls = PROJECT["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    citation = load(ROOT / "CITATION.cff")
    assert citation["repository-code"] == urls["Source"]
    assert citation["url"] == urls["Documentation"]
    known = (urls["Source"], urls["Documentation"])
    for link in load(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]:
        assert link["url"].startswith(known)
    assert f"{urls['Source']}/security/" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert load(ROOT / "CITATION.cff")["version"] == az_cv.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (.*)$", changelog, re.MULTILINE)[1]
    assert re.fullmatch(
        re.escape(az_cv.__version__) + r" \((unreleased|\d{4}-\d{2}-\d{2})\)", newest
    )


def test_the_release_list_knows_the_scripts_behind_the_numbers():
    def scripts(path):
        return set(re.findall(r"examples/[\w/]+\.py", path.read_text(encoding="utf-8")))

    listed = scripts(ROOT / "RELEASING.md")
    assert not [name for name in listed if not (ROOT / name).is_file()]
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert scripts(page) <= listed, page.name


PERMISSIVE = ("0BSD", "Apache", "BSD", "CC0", "MIT", "PSF", "Zlib")


def licences(distribution):
    """Return the licences that a distribution names, in whichever of three ways it does."""
    about = distribution.metadata
    if expression := about.get("License-Expression"):
        return re.split(r" AND | OR ", expression)
    named = [text for text in about.get_all("Classifier", []) if text.startswith("License ::")]
    return [text.rsplit("::")[-1].strip() for text in named] or [str(about.get("License"))]


def installed_with(name, extras=("",)):
    """Return the names of all distributions that installing one brings, itself included."""
    found = {name}
    for text in importlib.metadata.requires(name) or []:
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": x}) for x in extras):
            found |= installed_with(wanted.name, tuple(wanted.extras) or ("",))
    return found


def test_what_is_installed_with_it_has_permissive_licences():
    brought = installed_with("az-cv")
    assert {"jax", "numpy", "xarray"} < brought
    for name in sorted(brought):
        for licence in licences(importlib.metadata.distribution(name)):
            assert licence.startswith(PERMISSIVE), f"{name}: {licence}"
