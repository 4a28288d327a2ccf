//! Kernel parameters, and those that the kernel changes along with them.
//!
//! A write to `net/ipv4/ip_forward` also sets `forwarding` of every link and turns `accept_redirects` round
//! (`inet_forward_change` in net/ipv4/devinet.c); IPv6 does the like for `all`; a write to `default` reaches every link
//! that never had a value of its own (`devinet_copy_dflt_conf`, `neigh_copy_dflt_parms`); an algorithm that becomes the
//! machine's default is allowed to everybody from then on (`tcp_set_default_congestion_control`). All those values are
//! kept and put back one by one.
//!
//! Two things that follow are no parameters, and are not put back: with IPv4's forwarding the kernel turns LRO off at
//! every link (`dev_disable_lro`), and with IPv6's it forgets what routers have announced ([`announced`]).

mod announced;
mod code;

use std::collections::BTreeMap;
use std::fs;

use linux::sysctl::{self, Key};
use serde::{Deserialize, Serialize};

use super::register::{Along, At, Register, Times, Undoing};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::show::{inside, quoted};
pub(crate) use code::is_about_code;

/// Write a kernel parameter of the step's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSysctl {
    /// Its path below `/proc/sys`.
    pub key: Key,
    /// The text to write; words are separated by blanks.
    pub value: String,
}

impl Register for SetSysctl {
    type Value = String;
    type Along = Followers;

    /// What decides about code is not even read: a journal that was written by hand is no way to have a
    /// program started.
    fn read(&self, at: &At<'_>) -> Result<Option<String>, StepError> {
        code::refuse(&self.key)?;
        Ok(at.listing.parameter(at.opened, &self.key)?)
    }

    fn write(&self, at: &At<'_>, value: &String) -> Result<(), StepError> {
        Ok(at.opened.netns.run(|| sysctl::write(&self.key, value))??)
    }

    fn wanted(&self, _: &String) -> String {
        self.value.clone()
    }

    fn is_same(&self, one: &String, other: &String) -> bool {
        same(&self.in_kernels_form(one), &self.in_kernels_form(other))
    }

    fn subject(&self) -> String {
        self.key.to_string()
    }

    fn words(&self, value: &String) -> String {
        value.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn command(&self, place: &Place) -> String {
        let key = self.key.as_str();
        // With dots in a link's name only the form with slashes is unambiguous; sysctl(8) takes both.
        let key = if key.contains('.') { key.to_owned() } else { key.replace('/', ".") };
        inside(place, &format!("sysctl -w {}", quoted(&format!("{key}={}", self.value))))
    }

    fn refusal(&self, at: &At<'_>, was: &String) -> Result<Option<String>, StepError> {
        let turns_off = self.key.as_str().ends_with("/disable_ipv6");
        if turns_off && same(&self.value, "1") && !same(was, "1") {
            return self.loses_address(at);
        }
        let begins = announced::lets_forward(&self.key) && same(was, "0") && !same(&self.value, "0");
        if begins && at.opened.keeps_announced_routes { announced::lost_by(self, at) } else { Ok(None) }
    }

    /// Outside `net` there is one value for the whole machine.
    fn lifetime(&self) -> Lifetime<'_> {
        if self.key.as_str().starts_with("net/") { Lifetime::Netns } else { Lifetime::Machine }
    }

    fn missing(&self) -> StepError {
        StepError::NoParameter { key: self.key.to_string() }
    }
}

impl SetSysctl {
    /// The masks of CPUs among the parameters are printed as wide as the machine has CPUs; here without leading zeros.
    fn in_kernels_form(&self, value: &str) -> String {
        if !self.key.as_str().ends_with("_cpu_bitmap") {
            return value.to_owned();
        }
        linux::CpuSet::from_mask(value).map_or_else(|_| value.to_owned(), |cpus| cpus.to_mask())
    }

    /// Turning IPv6 off drops addresses and routes that turning it on again does not bring back, except those that the
    /// kernel makes by itself.
    fn loses_address(&self, at: &At<'_>) -> Result<Option<String>, StepError> {
        let netlink = &at.opened.netlink;
        let scope = self.key.as_str().split('/').nth(3).unwrap_or("all");
        if scope == "default" {
            return Ok(None);
        }
        let links = netlink.links()?;
        let affected = |index: u32| {
            scope == "all" || links.iter().any(|link| link.index == index && link.name.as_str() == scope)
        };
        let lost = netlink.addresses()?.into_iter().find(|info| match info.address {
            ipnet::IpNet::V4(_) => false,
            ipnet::IpNet::V6(net) => {
                !net.addr().is_unicast_link_local() && !net.addr().is_loopback() && affected(info.index)
            }
        });
        let key = &self.key;
        Ok(lost
            .map(|info| format!("{key} cannot be set to 1: address {} would be lost for good", info.address)))
    }
}

/// The parameters that follow another, with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Followers(BTreeMap<Key, String>);

impl Along<SetSysctl> for Followers {
    fn read(register: &SetSysctl, at: &At<'_>) -> Result<Followers, StepError> {
        Ok(Followers(at.opened.netns.run(|| read_along(&register.key))??))
    }

    fn changed_since(mut self, were: &Followers) -> Followers {
        self.0.retain(|key, value| were.0.get(key).is_some_and(|old| !same(old, value)));
        self
    }

    /// Puts them back when the main value is back and has taken them along once more. One that held something else than
    /// it was left with was changed by another program, and gets that again.
    fn put_back(undoing: &Undoing<'_, SetSysctl>, along: &Times<'_, Followers>) -> Result<bool, StepError> {
        let Undoing { register, at, values, is_back, .. } = undoing;
        along.was.0.keys().try_for_each(code::refuse)?;
        let ours = values.left.unwrap_or(&register.value);
        // The write that put the value back, perhaps of an undo that was interrupted after it, took the followers
        // along.
        let taken = (*is_back && !same(values.was, ours)).then_some(values.was.as_str());
        let mut written = false;
        let mut put_back = || {
            for (key, old) in &along.was.0 {
                let target = others(along, key, old, taken).unwrap_or(old);
                if sysctl::read(key)?.is_some_and(|now| !same(&now, target)) {
                    sysctl::write(key, target)?;
                    written = true;
                }
            }
            Ok::<_, linux::Error>(())
        };
        at.opened.netns.run(&mut put_back)??;
        Ok(written)
    }
}

/// What another program has written to a follower; `taken` is the value that took them along since the step, where one
/// did.
fn others<'a>(along: &Times<'a, Followers>, key: &Key, old: &str, taken: Option<&str>) -> Option<&'a String> {
    let found = along.found.0.get(key)?;
    let left = along.left.map(|left| left.0.get(key).map_or(old, String::as_str));
    let known = match (left, taken) {
        // Nothing was read back, so whatever is there may be the step's.
        (None, None) => true,
        (left, taken) => {
            let taken = taken.map(|value| follows(key, value));
            [left, taken].into_iter().flatten().any(|value| same(value, found))
        }
    };
    (!known).then_some(found)
}

/// What a follower gets from a value: the same, but for redirects, which a node that forwards does not accept.
fn follows<'v>(key: &Key, value: &'v str) -> &'v str {
    match (key.as_str(), value) {
        ("net/ipv4/conf/all/accept_redirects", "0") => "1",
        ("net/ipv4/conf/all/accept_redirects", _) => "0",
        _ => value,
    }
}

/// The values of all parameters that may follow the key; called inside the namespace.
fn read_along(key: &Key) -> Result<BTreeMap<Key, String>, linux::Error> {
    let mut values = BTreeMap::new();
    for follower in followers(key) {
        if let Some(value) = sysctl::read(&follower)? {
            values.insert(follower, value);
        }
    }
    Ok(values)
}

/// Which parameters the kernel may change along with one. Too many is harmless, they are only put back if they changed.
fn followers(key: &Key) -> Vec<Key> {
    let parts: Vec<&str> = key.as_str().split('/').collect();
    let mut keys = match parts[..] {
        ["net", "ipv4", "ip_forward"] | ["net", "ipv4", "conf", "all", "forwarding"] => {
            let mut keys = siblings("net/ipv4/conf", "forwarding");
            keys.extend(["net/ipv4/ip_forward", "net/ipv4/conf/all/accept_redirects"].map(known));
            keys
        }
        ["net", "ipv4", "tcp_congestion_control"] => vec![known("net/ipv4/tcp_allowed_congestion_control")],
        ["net", family @ ("ipv4" | "ipv6"), table @ ("conf" | "neigh"), "all" | "default", leaf] => {
            siblings(&format!("net/{family}/{table}"), leaf)
        }
        _ => Vec::new(),
    };
    keys.retain(|follower| follower != key);
    keys
}

/// The same parameter of `all`, `default` and every link of the calling thread's namespace.
fn siblings(directory: &str, leaf: &str) -> Vec<Key> {
    let Ok(entries) = fs::read_dir(format!("/proc/sys/{directory}")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut keys: Vec<Key> =
        names.filter_map(|name| Key::new(format!("{directory}/{name}/{leaf}")).ok()).collect();
    keys.sort();
    keys
}

/// The kernel separates numbers by tabs where people write spaces.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

fn known(key: &str) -> Key {
    Key::new(key).expect("written here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_word_by_word() {
        assert!(same("4096\t131072\t6291456", "4096 131072 6291456"));
        assert!(!same("1", "10"));
    }

    #[test]
    fn forwarding_takes_the_links_and_redirects_along() {
        let followers = followers(&known("net/ipv4/ip_forward"));
        assert!(followers.contains(&known("net/ipv4/conf/lo/forwarding")));
        assert!(followers.contains(&known("net/ipv4/conf/all/accept_redirects")));
        assert!(!followers.contains(&known("net/ipv4/ip_forward")));
    }

    #[test]
    fn a_parameter_of_one_link_goes_alone() {
        assert_eq!(followers(&known("net/ipv4/conf/lo/forwarding")), []);
        assert_eq!(followers(&known("net/ipv4/tcp_rmem")), []);
    }
}
