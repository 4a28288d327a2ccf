//! The page of knobs matches the table.

use std::path::Path;

use tune::{Disrupts, Knob, Lives, TABLE, ValueKind};

const PAGE: &str = "../../docs/knobs.md";

#[test]
fn the_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let got = page();
    if std::env::var_os("HOSTGAP_ACCEPT").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == got,
        "docs/knobs.md is not what the table says now; to accept: cargo xtask golden tune\n\
         --- it would be\n{got}"
    );
}

fn page() -> String {
    let mut text = String::from(
        "# Knobs\n\n\
         What a candidate of a race can set, with `tune.KNOB = value` in an [experiment](experiment.md), and what \
         [`hostgap tune`](tune.md) sets on a host. `hostgap tune knobs` prints the same.\n\
         This page is made from the table in `crates/tune/src/table` by a test; to make it again: \
         `cargo xtask golden tune`.\n\n\
         A knob of a *namespace* is set where the process with the sockets runs: in the pod, or in the node for \
         `host`. One of a *route* is set on the routes of that namespace that lead to the other side. One of a *queue* or a \
         *link* is set at the node's link to the other nodes; on a host, at the link that `--dev` names. One of the \
         *machine* applies to every namespace at once.\n\n\
         Defaults are Linux's own: the newest first, with the first kernel that has it, or what else decides it. A \
         parameter may also be called by the kernel's name, `net.ipv4.tcp_rmem` or \
         `net/ipv4/tcp_rmem`.\n",
    );
    for family in TABLE {
        text.push_str(&format!("\n## {}\n\n{}\n", family.title, family.about));
        family.knobs.iter().for_each(|knob| text.push_str(&section(knob)));
    }
    text
}

fn section(knob: &Knob) -> String {
    let Some(scope) = knob.scope() else {
        let Lives::Nowhere { gone, instead } = knob.lives else { unreachable!("only these have no scope") };
        return format!(
            "\n### `{}`\n\n{} Today: {gone}; {instead}.\n\nSource: {}.\n",
            knob.id, knob.why, knob.source
        );
    };
    let since = knob.since.map(|since| format!("from Linux {since}")).unwrap_or_default();
    let until = knob.until.map(|until| format!("no effect from Linux {until}")).unwrap_or_default();
    let kernels: Vec<&str> =
        [since.as_str(), until.as_str()].into_iter().filter(|text| !text.is_empty()).collect();
    let kernels = if kernels.is_empty() { String::new() } else { format!(" · {}", kernels.join(", ")) };
    let example = match knob.kind {
        ValueKind::Number { .. }
        | ValueKind::Signed { .. }
        | ValueKind::PowerOfTwo { .. }
        | ValueKind::PerQueue { .. }
        | ValueKind::Switch => knob.example.to_owned(),
        ValueKind::Sizes
        | ValueKind::Pages
        | ValueKind::Ports
        | ValueKind::Algorithm
        | ValueKind::Qdisc
        | ValueKind::Choice(_)
        | ValueKind::Cpus
        | ValueKind::QueueCpus
        | ValueKind::Rss(_) => {
            format!("\"{}\"", knob.example)
        }
    };
    let races = knob.races().expect("only those that are gone have none");
    let disrupts = match knob.disrupts {
        Disrupts::Nothing => String::new(),
        some => format!(" · setting it interrupts {some}"),
    };
    format!(
        "\n### `{}`\n\n{}\n\n`tune.{} = {example}` · {} · {scope}: `{}` · takes effect {} · risk {} · {races}{disrupts}{kernels}\n\nDefault {}.\n\nSource: {}.\n",
        knob.id, knob.why, knob.id, knob.kind, knob.lives, knob.reaches, knob.risk, knob.default, knob.source
    )
}
