"""Offline datasets: read, written, checked, filtered, drawn; and the tasks they belong to."""

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.data.load import load, save, to_dataframe
from pdocrl.data.tasks import Task, all_tasks, find_task, register

__all__ = ["Dataset", "Task", "all_tasks", "find_task", "load", "make_dataset", "register", "save", "to_dataframe"]
