//! `hostgap clean`: remove what dead races left behind.

use std::process::ExitCode;

use ::lab::{Cleaned, Home, LabError};
use anyhow::anyhow;
use node::UnusedNetworks;
use plan::Kernel;
use serde_json::json;

use crate::cni::print_networks;
use crate::{exit, output};

/// Remove what is left of races that died without cleaning up (after SIGKILL, for example).
///
/// Every start of `hostgap race` does the same. Running races and topologies of `hostgap lab up` are not touched, nor
/// is anything that hostgap did not make: other files in /run/hostgap/lab are named and left alone.
///
/// It also removes what the containers of a CNI network shared, if none is attached to that network any more; and
/// notes of what units shared in network namespaces that are gone (/run/hostgap/claims), if those units have lost
/// their journals.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let home = Home::of_this_machine();
    let cleaned = home.clean()?;
    // What races left is reported first, whatever the claims say.
    let removed = plan::remove_stale_claims(&Kernel::new()?);
    let stale = removed.as_deref().unwrap_or_default();
    let unused = node::Home::of_this_machine().remove_unused_networks();
    let networks = unused.clone().unwrap_or_default();
    let strangers = home.strangers()?;
    for stranger in &strangers {
        output::aside(format_args!("hostgap: left alone {}: not made by a race", stranger.display()));
    }
    let print = || {
        if args.json {
            let found = json!({
                "schema": 1, "cleaned": cleaned, "networks": networks.removed, "networks_left": networks.left,
                "stale_claims": stale, "left_alone": strangers
            });
            return output::result(found);
        }
        if cleaned.is_empty() && networks == UnusedNetworks::default() && stale.is_empty() {
            return output::result("nothing to clean");
        }
        cleaned.iter().try_for_each(print_cleaned)?;
        print_networks(&networks)?;
        stale.iter().try_for_each(|claims| {
            output::result(format_args!("{}: removed, its namespace is gone", claims.display()))
        })
    };
    let printed = print();
    if !args.json {
        for failure in cleaned.iter().flat_map(|cleaned| &cleaned.failures) {
            output::aside(format_args!("hostgap: could not undo {failure}"));
        }
    }
    output::after_work(printed)?;
    unused.as_ref().map_err(|failure| anyhow!("could not remove an unused network: {failure}"))?;
    removed.as_ref().map_err(|error| anyhow!("could not remove stale claims: {error}"))?;
    let failed = cleaned.iter().any(|cleaned| !cleaned.failures.is_empty());
    Ok(if failed { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS })
}

fn print_cleaned(cleaned: &Cleaned) -> Result<(), output::OutputError> {
    output::result(format_args!(
        "{}: undid {} steps, removed {} namespaces, ended {} processes",
        cleaned.id, cleaned.steps, cleaned.namespaces, cleaned.processes
    ))
}
