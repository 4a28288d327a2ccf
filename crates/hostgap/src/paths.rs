//! `hostgap paths`: the data paths and what they need, and what races nowhere here.

mod not_raced;

use std::process::ExitCode;

use datapath::{DataPath, Enters, SocketRole};
use linux::features::{Facts, Feature, Unmet, probe};

use self::not_raced::{Machine, NOT_RACED};
use crate::exit::Unprivileged;
use crate::output;

/// List the data paths, what each stands for, and whether it can run on this machine.
///
/// Ways that no race has follow, each with the reason and with what there is in its place. Each kernel feature is
/// tested by using it, in a namespace of its own; that needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(Unprivileged::in_own_namespaces)?;
    let (facts, machine) = (probe()?, Machine::here());
    if args.json {
        let paths: Vec<_> = datapath::ALL.iter().map(|path| json(path, &facts)).collect();
        let stacks: Vec<_> = STACKS.iter().map(|stack| stack.json(&facts)).collect();
        let not_raced: Vec<_> = NOT_RACED.iter().map(|way| way.json(&machine)).collect();
        output::result(serde_json::json!({
            "schema": 1, "kernel": facts.kernel, "paths": paths, "stacks": stacks, "not_raced": not_raced,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::result(format_args!("Data paths on kernel {}:\n", facts.kernel))?;
    for path in datapath::ALL {
        let unmet = path.unmet(&facts);
        output::result(format_args!(
            "  {:<16} {:<11} {}",
            path.name,
            mark(unmet.is_empty()),
            path.stands_for
        ))?;
        if path.enters == Enters::Named {
            output::result(format_args!("  {:<16} {:<11} races only when it is named", "", ""))?;
        }
        for need in unmet {
            output::result(format_args!("  {:<16} {:<11} {need}", "", ""))?;
        }
    }
    output::result("\nStacks of a server:\n")?;
    for stack in &STACKS {
        let (Stack { name, what, .. }, unmet) = (stack, stack.unmet(&facts));
        output::result(format_args!("  {name:<16} {:<11} {what}", mark(unmet.is_empty())))?;
        for need in unmet {
            output::result(format_args!("  {:<16} {:<11} {need}", "", ""))?;
        }
    }
    output::result("\nNot raced:\n")?;
    for way in &NOT_RACED {
        let mut name = way.name;
        for line in way.lines(&machine) {
            output::result(format_args!("  {name:<16} {line}"))?;
            name = "";
        }
    }
    for (part, side) in SIDES {
        let able = datapath::ALL.iter().filter(|path| path.alone(part).is_ok()).map(|path| path.name);
        let able: Vec<&str> = able.collect();
        output::result(format_args!("\nWith only the {side} in a container: {}", able.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sides that can be in a container while the other is not, as an experiment names them.
const SIDES: [(SocketRole, &str); 2] = [(SocketRole::Client, "client"), (SocketRole::Server, "server")];

/// What a server may answer on beside the kernel's sockets (`stack` of a candidate).
struct Stack {
    name: &'static str,
    what: &'static str,
    needs: Needs,
}

/// What the kernel or the machine has to have for a stack.
enum Needs {
    One(Feature),
    /// All that the only path needs on which the stack is.
    Path(&'static str),
}

const STACKS: [Stack; 3] = [
    Stack {
        name: "afxdp",
        what: "a stack of our own past the kernel's (`stack` of a candidate), frames copied",
        needs: Needs::One(Feature::AfXdp),
    },
    Stack {
        name: "vhost-user",
        what: "the same behind a port of a switch, with which it shares memory; on ovs-dpdk+direct",
        needs: Needs::Path("ovs-dpdk+direct"),
    },
    Stack {
        name: "verbs",
        what: "messages by RDMA verbs over software RoCE; races in a virtual machine alone (--kernel)",
        needs: Needs::One(Feature::Verbs),
    },
];

impl Stack {
    fn unmet(&self, facts: &Facts) -> Vec<Unmet> {
        match &self.needs {
            Needs::One(feature) => facts.unmet(&[*feature]),
            Needs::Path(name) => datapath::find(name).expect("it is a path of ours").unmet(facts),
        }
    }

    fn json(&self, facts: &Facts) -> serde_json::Value {
        let reasons: Vec<String> = self.unmet(facts).iter().map(ToString::to_string).collect();
        serde_json::json!({ "name": self.name, "runnable": reasons.is_empty(), "reasons": reasons })
    }
}

fn mark(can_run: bool) -> &'static str {
    if can_run { "can run" } else { "cannot run" }
}

fn json(path: &DataPath, facts: &Facts) -> serde_json::Value {
    let unmet: Vec<String> = path.unmet(facts).iter().map(ToString::to_string).collect();
    let alone = SIDES.iter().filter(|(part, _)| path.alone(*part).is_ok()).map(|(_, side)| *side);
    serde_json::json!({
        "name": path.name,
        "stands_for": path.stands_for,
        "attach": path.attach.name(),
        "transport": path.transport.name(),
        "opt_in": path.enters == Enters::Named,
        "in_container": alone.collect::<Vec<_>>(),
        "runnable": unmet.is_empty(),
        "reasons": unmet,
    })
}
