"""The table of the build: one row a stage, in pipeline order. `doit list` shows it, docs/ explains it."""

from __future__ import annotations

from collections.abc import Iterator

from buildlib.tasks import Task, open_project

PROJECT = open_project(__file__)
DOIT_CONFIG = {"default_tasks": PROJECT.default_tasks()}


def task_preflight() -> Iterator[Task]:
    """look at each device in use"""
    yield from PROJECT.preflight()


def task_source() -> Iterator[Task]:
    """bring the source ONNX into the content store"""
    yield from PROJECT.stage("source")


def task_upload() -> Iterator[Task]:
    """copy the ONNX to the device"""
    yield from PROJECT.stage("upload")


def task_compile() -> Iterator[Task]:
    """compile on the device"""
    yield from PROJECT.stage("compile")


def task_pull() -> Iterator[Task]:
    """bring the artifact home, with its sha256"""
    yield from PROJECT.stage("pull")


def task_verify() -> Iterator[Task]:
    """check the artifact without running it"""
    yield from PROJECT.stage("verify")


def task_install() -> Iterator[Task]:
    """put the artifact where the device's runtime looks"""
    yield from PROJECT.stage("install")


def task_validate() -> Iterator[Task]:
    """drive the installed artifact on the device"""
    yield from PROJECT.stage("validate")


def task_publish() -> Iterator[Task]:
    """files, manifests, one commit, pushed"""
    yield from PROJECT.stage("publish")


def task_confirm() -> Iterator[Task]:
    """download what was published, by URL and by a device's selector, and compare"""
    yield from PROJECT.stage("confirm")


def task_model() -> Iterator[Task]:
    """everything that a bare doit does, for one model"""
    yield from PROJECT.models()
