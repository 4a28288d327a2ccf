//! What the agent has said of what is not as it should be: each reason once, and one line for many nodes that have it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use tracing::{info, warn};

/// As many nodes that begin to fail for one reason have a line each.
const EACH: usize = 3;

/// What was said last of each thing that is not as it should be.
#[derive(Debug, Default)]
pub(crate) struct ReasonLog(BTreeMap<String, String>);

impl ReasonLog {
    /// Says why something is not as it should be, once, and once that it is again.
    pub(crate) fn say_if_new(&mut self, what: &str, why: Option<&str>) {
        match (self.0.get(what), why) {
            (Some(last), Some(why)) if last == why => {}
            (_, Some(why)) => {
                warn!("{what}: {why}");
                self.0.insert(what.to_owned(), why.to_owned());
            }
            (Some(_), None) => {
                info!("{what}: it is as it should be again");
                self.0.remove(what);
            }
            (None, None) => {}
        }
    }

    /// The same of many of one kind, by their names: `kind` and the name are what is spoken of. Those that fail for one
    /// reason are one line, which names how many there are and the first of them; so are those that do not any more.
    pub(crate) fn say_of_many(&mut self, kind: &str, whys: &BTreeMap<&str, Option<String>>) {
        let mut failing: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
        let mut well: Vec<&str> = Vec::new();
        for (name, why) in whys {
            match (self.0.get(&format!("{kind} {name}")), why.as_deref()) {
                (Some(last), Some(why)) if last == why => {}
                (_, Some(why)) => failing.entry(cause(why)).or_default().push((name, why)),
                (Some(_), None) => well.push(name),
                (None, None) => {}
            }
        }
        for those in failing.into_values() {
            if those.len() > EACH {
                let names: Vec<&str> = those.iter().map(|(name, _)| *name).collect();
                warn!("{kind} {}, for one reason; {}: {}", listed(&names), names[0], those[0].1);
                let said = those.iter().map(|(name, why)| (format!("{kind} {name}"), (*why).to_owned()));
                self.0.extend(said);
            } else {
                those.iter().for_each(|(name, why)| self.say_if_new(&format!("{kind} {name}"), Some(why)));
            }
        }
        if well.len() > EACH {
            info!("{kind} {}: they are as they should be again", listed(&well));
            for name in well {
                self.0.remove(&format!("{kind} {name}"));
            }
        } else {
            well.iter().for_each(|name| self.say_if_new(&format!("{kind} {name}"), None));
        }
    }

    /// Forgets what was said of things that are no longer there.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|what, _| is_there(what));
    }
}

/// What texts have in common that give one cause for different nodes: the last part, since what comes before it was
/// attempted and on what, without addresses.
fn cause(why: &str) -> String {
    let last = why.rsplit(": ").next().unwrap_or(why);
    let is_address = |word: &&str| {
        let word = word.trim_end_matches([',', ';']);
        word.parse::<IpAddr>().is_ok() || word.parse::<IpNet>().is_ok()
    };
    last.split(' ').filter(|word| !is_address(word)).collect::<Vec<_>>().join(" ")
}

/// How these are spoken of: each by its name, or many at once.
pub(crate) fn said_together(names: &[&str]) -> Vec<String> {
    if names.len() > EACH {
        vec![listed(names)]
    } else {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// The first names, and how many more there are.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(EACH).copied().collect::<Vec<_>>().join(", ");
    format!("{first} and {} more", names.len() - EACH.min(names.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the log holds after these.
    fn logged(log: &mut ReasonLog, whys: &[(&str, Option<&str>)]) -> Vec<String> {
        log.say_of_many("node", &whys.iter().map(|(name, why)| (*name, why.map(str::to_owned))).collect());
        log.0.iter().map(|(what, why)| format!("{what}: {why}")).collect()
    }

    #[test]
    fn what_is_said_of_many_is_known_of_each() {
        let mut all = ReasonLog::default();
        let down = |name| (name, Some("replace route: network is down"));
        let four = [down("a"), down("b"), down("c"), down("d")];
        assert_eq!(logged(&mut all, &four).len(), 4);
        assert_eq!(logged(&mut all, &four).len(), 4, "and not said again");
        let back = four.map(|(name, _)| (name, None));
        assert_eq!(logged(&mut all, &back), Vec::<String>::new());
    }

    #[test]
    fn a_line_for_many_names_the_first_and_counts_the_others() {
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(cause("replace route 10.0.0.0/24 via x: network is down"), "network is down");
        let far = |address: &str| cause(&format!("{address} is not on the link eth0"));
        assert_eq!((far("192.0.2.1"), far("10.1.0.0/24,")), (far("2001:db8::1"), far("192.0.2.7")));
        assert_ne!(far("192.0.2.1"), cause("192.0.2.1 is not on the link eth1"));
    }
}
