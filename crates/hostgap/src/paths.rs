//! `hostgap paths`: the data paths and what they need.

use std::process::ExitCode;

use datapath::DataPath;
use linux::features::{Facts, probe};

/// List the data paths, what each stands for, and whether it can run on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// `hostgap paths`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let facts = probe()?;
    if args.json {
        let paths: Vec<_> = datapath::ALL.iter().map(|path| json(path, &facts)).collect();
        println!("{}", serde_json::json!({ "schema": 1, "kernel": facts.kernel, "paths": paths }));
        return Ok(ExitCode::SUCCESS);
    }
    println!("Data paths on kernel {}:\n", facts.kernel);
    for path in datapath::ALL {
        let unmet = path.unmet(&facts);
        let mark = if unmet.is_empty() { "can run" } else { "cannot run" };
        println!("  {:<15} {:<11} {}", path.name, mark, path.stands_for);
        for need in unmet {
            println!("  {:<15} {:<11} {need}", "", "");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn json(path: &DataPath, facts: &Facts) -> serde_json::Value {
    let unmet: Vec<String> = path.unmet(facts).iter().map(ToString::to_string).collect();
    serde_json::json!({
        "name": path.name,
        "stands_for": path.stands_for,
        "attach": path.attach.name(),
        "transport": path.transport.name(),
        "runnable": unmet.is_empty(),
        "reasons": unmet,
    })
}
