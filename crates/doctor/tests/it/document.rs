//! The page of findings agrees with the table.

use std::path::Path;

use doctor::{Check, TABLE};

const PAGE: &str = "../../docs/doctor.md";
/// Text above this line is written by hand.
const MARK: &str = "<!-- Below this line the page is made from the table of checks. -->\n";

#[test]
fn the_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = std::fs::read_to_string(&path).unwrap();
    let (written, made) = text.split_once(MARK).expect("the page has the line below which it is made");
    let got = page();
    if std::env::var_os("HOSTGAP_ACCEPT").is_some() {
        std::fs::write(&path, format!("{written}{MARK}{got}")).unwrap();
        return;
    }
    assert!(
        made == got,
        "docs/doctor.md is not what the table says now; to accept: cargo xtask golden doctor\n\
         --- it would be\n{got}"
    );
}

fn page() -> String {
    let mut text = String::from("\n# Findings\n");
    for family in TABLE {
        text += &format!("\n## {}\n", family.title);
        family.checks.iter().for_each(|check| text += &section(check));
    }
    text
}

fn section(check: &Check) -> String {
    let list = |words: &[&str], link: bool| {
        let words = words
            .iter()
            .map(|word| if link { format!("[`{word}`](knobs.md#{word})") } else { (*word).to_owned() });
        words.collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("\n### {}: {}\n\n{}\n\n", check.code, check.title, check.why);
    text += &format!("*What to do:* {}.\n\n", check.remedy);
    if !check.knobs.is_empty() {
        text += &format!("*Knobs:* {}.\n\n", list(check.knobs, true));
    }
    text += &format!("*How to verify:* {}.\n\n", check.verify);
    if !check.follows.is_empty() {
        text +=
            &format!("*Comes after* {}, of which it may be a consequence.\n\n", list(check.follows, false));
    }
    text + &format!("Source: {}.\n", check.source)
}
