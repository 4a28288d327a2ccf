//! The table of data paths and the pages behind it.

use datapath::{ALL, Between, DataPath, Enters, Family, Reach};

use crate::accepted;

#[test]
fn the_table_is_what_the_list_says() {
    accepted::check("../../docs/datapaths/README.md", &table());
}

/// The headings that every page has, in this order.
const HEADINGS: &[&str] =
    &["## What it stands for", "## A packet's way", "## What it needs", "## MTU", "## Limits", "## Sources"];

#[test]
fn every_path_has_a_page_with_the_same_headings() {
    for path in ALL {
        let file = format!("{}/../../docs/datapaths/{}.md", env!("CARGO_MANIFEST_DIR"), path.name);
        let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(page.starts_with(&format!("# {}\n", path.name)), "{file} has another title");
        let found: Vec<_> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, HEADINGS, "{file}");
    }
}

fn table() -> String {
    let mut text = String::from(
        "# Data paths\n\n\
         A data path is how a pod reaches its node (*attach*) times how nodes reach each other's pods (*transport*).\n\
         This table is made from the list in the code by a test of the crate `datapath`; to make it again:\n\
         `HOSTGAP_ACCEPT=1 cargo test -p datapath --test it`.\n\n\
         | data path | stands for | attach | transport | clients call | between the nodes | pod MTU on 1500 | needs |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for path in ALL {
        text.push_str(&row(path));
    }
    text
}

fn row(path: &DataPath) -> String {
    let reach = match path.reach {
        Reach::Node => "the node's address",
        Reach::PublishedPort => "a published port of the node",
        Reach::Pod => "the pod's address",
    };
    let between = match path.between {
        Between::Wire => "one Ethernet",
        Between::Router => "a router",
    };
    let entry = match path.enters {
        Enters::Always => "",
        Enters::Named => " (races by name alone)",
    };
    let needs: Vec<_> = path.needs().iter().map(ToString::to_string).collect();
    format!(
        "| [`{0}`]({0}.md) | {1}{entry} | {2} | {3} | {reach} | {between} | {4} | {5} |\n",
        path.name,
        path.stands_for,
        path.attach.name(),
        path.transport.name(),
        mtu(path),
        needs.join(", ")
    )
}

/// Where the outer family matters, both.
fn mtu(path: &DataPath) -> String {
    let [v4, v6] = Family::BOTH.map(|outer| 1500 - path.transport.overhead_bytes(outer));
    if v4 == v6 { v4.to_string() } else { format!("{v4}, over IPv6 {v6}") }
}
