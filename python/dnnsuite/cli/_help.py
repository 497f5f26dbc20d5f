# SPDX-License-Identifier: MIT
"""Texts of the help of each command: two examples, options that all share, and what to write for a value."""

from __future__ import annotations

#: Two command lines of each command, without `dnnsuite`.
EXAMPLES = {
    "advise": ("advise bert --preset quick", "advise bert --device cuda"),
    "baseline check": ("baseline check dnnsuite-runs/bert-*", "baseline check out --fail-on slower:10% --markdown"),
    "baseline save": ("baseline save dnnsuite-runs/bert-*", "baseline save out -b mine.csv --replace"),
    "compare": ("compare before after", "compare old new --across machine --cost-per-hour 2,3 --out page.html"),
    "data list": ("data list", "data list --dataroot /data --json"),
    "data prepare": ("data prepare mnist --from downloads", "data prepare cifar10 --fake 1000"),
    "data tfrecord": ("data tfrecord imagenet", "data tfrecord imagenet --out shards --workers 4"),
    "data valprep": ("data valprep imagenet/val --dry-run", "data valprep imagenet/val --labels labels.txt"),
    "data where": ("data where mnist", "data where imagenet --dataroot /data"),
    "doctor": ("doctor", "doctor --json"),
    "import": ("import ncu.csv --out tables", "import rank0.json rank1.json"),
    "ladder": ("ladder --preset quick", "ladder --rungs fp32,+amp --out rungs"),
    "list": ("list", "list --json"),
    "metrics list": ("metrics list '*dram*' --chip GH100", "metrics list --chip GA100 --sampling"),
    "metrics plan": ("metrics plan cores,memory --chip GH100", "metrics plan fma --chip GA100 --kernels"),
    "metrics roles": ("metrics roles", "metrics roles 'dram*' --chip GH100"),
    "metrics support": ("metrics support", "metrics support --device 1"),
    "pin clean": ("pin clean", "pin clean --kill"),
    "pin exec": ("pin exec --slots 4 --slot 0 -- python train.py", "pin exec --backend affinity -- python train.py"),
    "pin ls": ("pin ls", "pin ls --json"),
    "pin plan": ("pin plan --slots 4", "pin plan --topology other.json"),
    "pin probe": ("pin probe", "pin probe --json"),
    "pin run": ("pin run --slots 2 -- python train.py", "pin run -- python train.py --seed {slot}"),
    "plot": ("plot dnnsuite-runs/bert-*", "plot out --kind monitor --save load.png"),
    "profile": ("profile bert", "profile -- python train.py"),
    "report": ("report out", "report out --out report.html --cost-per-hour 2 --currency EUR"),
    "roofline": ("roofline", "roofline bert --out roofs"),
    "run": ("run toy_reg --preset quick", "run baselines --repeats 10 --out out"),
    "show": ("show bert", "show --all"),
    "throughput": ("throughput toy_reg --preset quick", "throughput bert --batch-sizes 1,8,64"),
    "train": ("train --preset quick", "train imagenet-resnet50 --dataroot DATA --resume"),
    "tune": ("tune resnet --preset quick", "tune bert --algorithm asha --trials 50 --out search"),
    "workflow": ("workflow bert --preset quick", "workflow bert --modes serial,hfta --plan 1,2,4,8"),
}

#: Texts of options that mean the same in every command but those that say another; the default is in brackets.
HELP = {
    "allow_changed": "With --resume: a setting that may have changed; the records note it. Repeatable.",
    "cluster_option": "Option for the cluster tasks, e.g. timeout_min=60 or slurm_partition=gpu; repeatable.",
    "data": "Source of the samples; auto reads the files of the data set if it finds them.  [auto]",
    "device": "Device to run on.  [auto]",
    "monitor": "Where samples of the machine's load come from.  [auto]",
    "option": "Option of the job, e.g. dropout=0.2; repeatable.",
    "plugin": "Module that registers your own jobs; repeatable.",
    "quiet": "Show no progress; results and errors only.",
    "resume": "Resume: run whatever is missing in --out (default: the newest folder).",
}

#: Groups of options in the help, by the names of their parameters; the rest are the command's own, and come first.
GROUPS = {
    "Results": "out resume allow_changed quiet as_json save markdown pdf title hfta_tree save_target evaluate dry_run"
    " show",
    "Data": "data dataroot cold no_loader",
    "Machine": "device devices device_model threads pin require copies alone monitor share cluster cluster_option"
    " workers nproc shard nodes gpus_per_node timeout slots slot locality smt reserve_memory allow_smt_split cpus"
    " memory backend parent",
}

_METAVARS = {
    "DIR": "out dataroot hfta_tree alone base tokenizer",
    "FILE": "baseline to labels synsets words space topology against weights source save report.out compare.out"
    " check.out pdf save_target held_out",
    "target|VALUE": "until",
    "auto|real|synthetic|FILE": "tune.data",
    "NAME": "workflow.job config metric name allow_changed chip currency kind across device_model",
    "NAMES": "profile.metrics exclude unfused devices",
    "NAME=VALUE": "option cluster_option",
    "MODULE": "plugin",
    "N,N,...": "plan batch_sizes",
    "X,X,...": "lrs",
    "A,B": "compare.cost_per_hour compare.watts",
    "CONDITION": "fail_on",
    "N": "support.device",
    "N|gpus": "slots",
    "N|all": "slot copies",
    "SIZE": "memory reserve_memory",
    "CPUS": "cpus",
    "GROUP": "parent",
    "auto|never|FILE": "train.resume",
    "TEXT": "title",
}
_METAVAR_OF = {name: metavar for metavar, names in _METAVARS.items() for name in names.split()}


def metavar_of(command: str, name: str, words: str) -> str | None:
    """Return what help calls the value of a command's option: its own name, the `words` that it takes, or the name in
    all commands; None to say only whether it is a number."""
    return _METAVAR_OF.get(f"{command.rpartition(' ')[2]}.{name}") or words or _METAVAR_OF.get(name)
