//! All cases, one file for each verb or part of the protocol.
//!
//! A file begins with its list, in the order in which they are shown. Sentences are quoted from
//! <https://github.com/containernetworking/cni/blob/3f51e88/SPEC.md>, version 1.1.0.

mod add;
mod check;
mod concurrency;
mod del;
mod environment;
mod gc;
mod input;
mod kernel;
mod result;
mod status;
mod version;

use crate::Case;

/// The cases by file, in the order in which they are shown.
pub const ALL: &[&[Case]] = &[
    version::CASES,
    environment::CASES,
    input::CASES,
    add::CASES,
    result::CASES,
    kernel::CASES,
    check::CASES,
    del::CASES,
    concurrency::CASES,
    gc::CASES,
    status::CASES,
];

/// All cases, verb by verb.
pub fn all() -> impl Iterator<Item = &'static Case> {
    ALL.iter().copied().flatten()
}

/// The cases of a name, or of a prefix up to a hyphen: `del` stands for all that begin with `del-`.
pub fn find(name: &str) -> Vec<&'static Case> {
    let prefix = format!("{name}-");
    all().filter(|case| case.id == name || case.id.starts_with(&prefix)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Demand;

    #[test]
    fn names_are_unique_and_short() {
        let names: BTreeSet<&str> = all().map(|case| case.id).collect();
        assert_eq!(names.len(), all().count());
        for case in all() {
            assert!(case.id.len() < 24 && case.title.len() <= 90, "{}", case.id);
            assert!(
                case.id.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '-'),
                "{}",
                case.id
            );
            let is_place = ["overview", "section ", "appendix", "released versions"]
                .iter()
                .any(|part| case.section.starts_with(part));
            assert!(is_place, "{}", case.section);
        }
    }

    /// In the sentence of `result-ips` the word is part of what a number means.
    #[test]
    fn what_a_sentence_says_with_should_is_no_must() {
        for case in all().filter(|case| case.id != "result-ips") {
            let words: BTreeSet<String> =
                case.sentence.split(|sign: char| !sign.is_alphanumeric()).map(str::to_lowercase).collect();
            if words.contains("should") && !words.contains("must") {
                assert_eq!(case.demand, Demand::Should, "{}", case.id);
            }
        }
    }

    #[test]
    fn a_prefix_stands_for_a_group() {
        assert_eq!(find("del-twice").len(), 1);
        assert!(find("del").len() > 5 && find("del").iter().all(|case| case.id.starts_with("del-")));
        assert!(find("de").is_empty());
    }
}
