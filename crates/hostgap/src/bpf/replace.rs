//! `hostgap bpf replace` and `replace-guard`: this version's programs in the place of others, while packets pass.

use anyhow::Context;
use linux::NetnsRef;
use node::{Home, SharedPrograms};
use plan::forwarding::{Guard, Programs};
use plan::{Kernel, Place, StepError};

use super::{At, ConfigArgs, known, netns, place_of};
use crate::exit::BadInput;
use crate::output;

/// What programs cannot be loaded without.
const NEEDED: [&str; 6] = ["wire", "mtu", "pods", "cluster", "gateway", "gateway_mac"];

#[derive(Debug, clap::Args)]
#[command(mut_args(all_or_none))]
pub(super) struct ReplaceArgs {
    /// The network namespace of the node: its name, or the path of one without a name, such as /proc/PID/ns/net
    /// [default: this one].
    #[arg(long, value_name = "NAME|PATH", value_parser = netns)]
    netns: Option<NetnsRef>,
    /// The name under which the node's programs are pinned [default: all that networks of the CNI plugin have].
    node: Option<String>,
    #[command(flatten)]
    config: Option<ConfigArgs>,
}

/// Lets the arguments of load be left out, but only together.
fn all_or_none(arg: clap::Arg) -> clap::Arg {
    let id = arg.get_id().as_str();
    if ["netns", "node"].contains(&id) {
        return arg;
    }
    let others: Vec<&str> = NEEDED.into_iter().filter(|other| *other != id).collect();
    arg.required(false).requires_all(others)
}

pub(super) fn replace(args: ReplaceArgs) -> anyhow::Result<()> {
    let ReplaceArgs { netns, node, config } = args;
    let found = match (node, config) {
        (Some(node), Some(config)) => vec![SharedPrograms::Forwarding(config.of(node))],
        (None, Some(_)) => {
            let what = "NODE is missing: the programs of one node are to have these arguments";
            return Err(BadInput(what.to_owned()).into());
        }
        (node, None) => loaded_by_plugin(node.as_deref())?,
    };
    let place = place_of(netns)?;
    for programs in &found {
        known(programs.node())?;
        match programs {
            SharedPrograms::Forwarding(programs) => replace_forwarding(&place, programs)?,
            SharedPrograms::Guard(guard) => replace_guard_at(&place, guard)?,
        }
    }
    Ok(())
}

/// What the CNI plugin has loaded for containers that stand, as it has written down: of one node, or all.
fn loaded_by_plugin(node: Option<&str>) -> anyhow::Result<Vec<SharedPrograms>> {
    node.map(known).transpose()?;
    let found = Home::of_this_machine().shared_programs(None).map_err(anyhow::Error::msg);
    let mut found = found.context("find what the CNI plugin has loaded")?;
    found.retain(|programs| node.is_none_or(|node| programs.node() == node));
    match node {
        Some(node) if found.is_empty() => {
            let what = format!(
                "the programs of {node} are of no network of the CNI plugin: give the arguments of load"
            );
            return Err(BadInput(what).into());
        }
        None if found.is_empty() => {
            output::result(format_args!("no network of the CNI plugin has programs"))?;
        }
        _ => {}
    }
    Ok(found)
}

pub(super) fn replace_guard(at: At) -> anyhow::Result<()> {
    known(&at.node)?;
    replace_guard_at(&place_of(at.netns)?, &Guard { node: at.node })
}

fn replace_forwarding(place: &Place, programs: &Programs) -> anyhow::Result<()> {
    let replaced =
        plan::replace_programs(&mut Kernel::new()?, place, programs).map_err(|error| match error {
            StepError::NoLink { link } => BadInput(format!("there is no link {link} in {place}")).into(),
            error => anyhow::Error::from(error).context("replace"),
        })?;
    let ::bpf::Replaced { forward, splice } = replaced;
    let ::bpf::forward::Replaced { from, links, filters, made } = forward;
    let at = links + filters;
    output::result(format_args!("the programs of {} were replaced at {at} links", programs.node))?;
    print_maps((from, ::bpf::forward::FORMAT), &made)?;
    if let Some(::bpf::splice::Replaced { connections, .. }) = splice {
        output::result(format_args!(
            "  those that splice were replaced; connections that keep the old ones until they end: {connections}"
        ))?;
    }
    Ok(())
}

fn replace_guard_at(place: &Place, guard: &Guard) -> anyhow::Result<()> {
    let replaced = plan::replace_guard(&mut Kernel::new()?, place, guard);
    let ::bpf::guard::Replaced { from, links, filters, made } = replaced.context("replace")?;
    output::result(format_args!("the guard of {} was replaced at {} links", guard.node, links + filters))?;
    print_maps((from, ::bpf::guard::FORMAT), &made)
}

/// What became of maps that were not as today's programs make them.
fn print_maps((from, to): (u32, u32), made: &[String]) -> anyhow::Result<()> {
    if from != to {
        output::result(format_args!("  maps of format {from} are now of format {to}"))?;
    }
    if !made.is_empty() {
        output::result(format_args!("  made again: {}", made.join(", ")))?;
    }
    Ok(())
}
