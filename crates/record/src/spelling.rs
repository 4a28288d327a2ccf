//! Suggests the name that a misspelt one probably stands for.

use std::fmt::Display;

/// How alike two names are at least, by Jaro-Winkler (0 to 1): the limit that clap has for its suggestions too.
const LIKENESS_MIN: f64 = 0.8;

/// The name that is nearest to an unknown one in spelling, if one is near.
pub fn nearest<N: AsRef<str>>(unknown: &str, names: impl IntoIterator<Item = N>) -> Option<N> {
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(unknown, name.as_ref()), name))
        .filter(|(likeness, _)| *likeness > LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// The part of a message that proposes a name, to stand behind the unknown one: `, did you mean "x"?`. It is empty
/// where no name is near. The name comes in the marks in which the message has the unknown one.
pub fn did_you_mean(nearest: Option<impl Display>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unknown: &str, expected: Option<&str>) {
        assert_eq!(
            nearest(unknown, ["rounds", "rates", "bridge+direct", "bridge+vxlan"]),
            expected,
            "{unknown}"
        );
    }

    #[test]
    fn the_nearest_is_found_and_a_far_one_is_not() {
        check("ruonds", Some("rounds"));
        check("rate", Some("rates"));
        check("brigde+vxlan", Some("bridge+vxlan"));
        check("quux", None);
        check("", None);
        assert_eq!(nearest("rounds", Vec::<String>::new()), None);
    }

    #[test]
    fn a_proposal_follows_the_unknown_name() {
        assert_eq!(did_you_mean(Some(format_args!("{:?}", "rates"))), ", did you mean \"rates\"?");
        assert_eq!(did_you_mean(Some("`rates`")), ", did you mean `rates`?");
        assert_eq!(did_you_mean(None::<&str>), "");
    }
}
