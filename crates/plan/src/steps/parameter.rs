//! Kernel parameters, and those that the kernel changes along with them.
//!
//! A write to `net/ipv4/ip_forward` also sets `forwarding` of every link and turns `accept_redirects` round
//! (`inet_forward_change` in net/ipv4/devinet.c); IPv6 does the like for `all`; a write to `default` reaches every link
//! that never had a value of its own (`devinet_copy_dflt_conf`, `neigh_copy_dflt_parms`); an algorithm that becomes the
//! machine's default is allowed to everybody from then on (`tcp_set_default_congestion_control`). All those values are
//! kept and put back one by one.

use std::collections::BTreeMap;
use std::fs;

use linux::sysctl::{self, Key};

use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::{Kernel, Place};

pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    key: &Key,
    wanted: &str,
) -> Result<Before, StepError> {
    refuse_code(key)?;
    let netns = &kernel.at(place)?.netns;
    let value = netns.run(|| sysctl::read(key))??.ok_or_else(|| missing(key))?;
    if same(wanted, "1") && !same(&value, "1") && key.as_str().ends_with("/disable_ipv6") {
        refuse_to_drop_addresses(kernel, place, key)?;
    }
    let along = kernel.at(place)?.netns.run(|| read_along(key))??;
    Ok(Before::Sysctl { value, along })
}

pub(super) fn write(kernel: &mut Kernel, place: &Place, key: &Key, value: &str) -> Result<(), StepError> {
    Ok(kernel.at(place)?.netns.run(|| sysctl::write(key, value))??)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    key: &Key,
    before: &Before,
) -> Result<After, StepError> {
    let Before::Sysctl { along: were, .. } = before else { unreachable!("before made another state") };
    let netns = &kernel.at(place)?.netns;
    let value = netns.run(|| sysctl::read(key))??.ok_or_else(|| missing(key))?;
    let mut along = netns.run(|| read_along(key))??;
    along.retain(|key, value| were.get(key).is_some_and(|old| !same(old, value)));
    Ok(After::Sysctl { value, along })
}

pub(super) fn verify(key: &Key, wanted: &str, found: &str) -> Result<(), StepError> {
    if same(&in_kernels_form(key, wanted), &in_kernels_form(key, found)) {
        Ok(())
    } else {
        Err(StepError::NotTaken { wanted: wanted.to_owned(), found: found.to_owned() })
    }
}

pub(super) fn undo(
    kernel: &mut Kernel,
    place: &Place,
    (key, wanted): (&Key, &str),
    before: &Before,
    after: Option<&After>,
) -> Result<Undone, StepError> {
    let Before::Sysctl { value: old, along } = before else { unreachable!("before made another state") };
    // A journal that somebody has written by hand is no way to have a program started.
    refuse_code(key)?;
    let netns = &kernel.at(place)?.netns;
    let Some(now) = netns.run(|| sysctl::read(key))?? else { return Ok(Undone::Gone) };
    let (ours, followed) = match after {
        Some(After::Sysctl { value, along }) => (value.as_str(), Some(along)),
        _ => (wanted, None),
    };
    let is_ours = same(&in_kernels_form(key, &now), &in_kernels_form(key, ours));
    if !is_ours && !same(&now, old) {
        return Ok(Undone::ChangedByOther { found: now });
    }
    let back = same(&now, old);
    // Whoever put the value back, perhaps an undo that was interrupted behind it, took the followers along.
    let taken = (back && !same(old, ours)).then_some(old.as_str());
    let written = netns.run(|| {
        let found = read_along(key)?;
        if !back {
            sysctl::write(key, old)?;
        }
        Followers { were: along, left: followed, found, taken }.put_back()
    })??;
    Ok(if back && !written { Undone::AlreadySo } else { Undone::Restored })
}

/// The parameters that follow another.
struct Followers<'a> {
    /// Before the step.
    were: &'a BTreeMap<Key, String>,
    /// Those that the step changed, as it left them; `None`: nothing was read back.
    left: Option<&'a BTreeMap<Key, String>>,
    /// Before undo.
    found: BTreeMap<Key, String>,
    /// The value that took them along since the step, where one did.
    taken: Option<&'a str>,
}

impl Followers<'_> {
    /// Puts them back when the main value is back and has taken them along once more. One that held something else than
    /// it was left with was changed by somebody else, and gets that again. True if any had to be written.
    fn put_back(&self) -> Result<bool, linux::Error> {
        let mut written = false;
        for (key, old) in self.were {
            let target = self.others(key, old).unwrap_or(old);
            if sysctl::read(key)?.is_some_and(|now| !same(&now, target)) {
                sysctl::write(key, target)?;
                written = true;
            }
        }
        Ok(written)
    }

    /// What somebody else has written there.
    fn others(&self, key: &Key, old: &str) -> Option<&str> {
        let found = self.found.get(key)?;
        let known = match (self.left, self.taken) {
            // Nothing was read back, so whatever is there may be the step's.
            (None, None) => true,
            (left, taken) => {
                let left = left.map(|left| left.get(key).map_or(old, String::as_str));
                let taken = taken.map(|value| follows(key, value));
                [left, taken].into_iter().flatten().any(|value| same(value, found))
            }
        };
        (!known).then_some(found)
    }
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

/// Parameters that name a program which the kernel starts as root, or say which modules and programs it takes: nothing of
/// a network needs them, and whoever can have them written has the machine.
///
/// Source: Documentation/admin-guide/sysctl/kernel.rst, fs.rst.
const CODE: &[&str] = &[
    "fs/binfmt_misc",
    "fs/protected_",
    "fs/suid_dumpable",
    "kernel/cap_last_cap",
    "kernel/core_",
    "kernel/hotplug",
    "kernel/kexec_",
    "kernel/modprobe",
    "kernel/modules_disabled",
    "kernel/poweroff_cmd",
    "kernel/randomize_va_space",
    "kernel/sysrq",
    "kernel/unprivileged_",
    "kernel/usermodehelper",
    "kernel/yama",
    "vm/mmap_min_addr",
];

/// Whether a parameter, named by its path or by its last part, is one that is never written.
pub(crate) fn is_about_code(name: &str) -> bool {
    let name = name.replace('.', "/");
    CODE.iter().any(|prefix| {
        name.starts_with(prefix) || (!name.contains('/') && prefix.ends_with(&format!("/{name}")))
    }) || ["core_pattern", "core_uses_pid", "core_pipe_limit"].contains(&name.as_str())
}

fn refuse_code(key: &Key) -> Result<(), StepError> {
    if is_about_code(key.as_str()) {
        let why = format!("{key} decides which code runs, or how it is protected; hostgap never writes it");
        return Err(StepError::Refused { why });
    }
    Ok(())
}

/// Turning IPv6 off drops addresses and routes that turning it on again does not bring back, except those that the
/// kernel makes by itself.
fn refuse_to_drop_addresses(kernel: &mut Kernel, place: &Place, key: &Key) -> Result<(), StepError> {
    let netlink = &kernel.at(place)?.netlink;
    let scope = key.as_str().split('/').nth(3).unwrap_or("all");
    if scope == "default" {
        return Ok(());
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
    match lost {
        None => Ok(()),
        Some(info) => {
            let why = format!("{key} cannot be set to 1: address {} would be lost for good", info.address);
            Err(StepError::Refused { why })
        }
    }
}

/// The one mask of CPUs among the parameters is printed as wide as the machine has CPUs; here without leading zeros.
fn in_kernels_form(key: &Key, value: &str) -> String {
    if !key.as_str().ends_with("_cpu_bitmap") {
        return value.to_owned();
    }
    linux::CpuSet::from_mask(value).map_or_else(|_| value.to_owned(), |cpus| cpus.to_mask())
}

/// The kernel separates numbers by tabs where people write spaces.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

fn missing(key: &Key) -> StepError {
    StepError::NoParameter { key: key.to_string() }
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
    fn what_decides_about_code_is_never_written() {
        assert!(
            is_about_code("core_pattern") && is_about_code("kernel.modprobe") && is_about_code("hotplug")
        );
        assert!(!is_about_code("somaxconn") && !is_about_code("core"));
        for key in ["kernel/core_pattern", "kernel/modprobe", "fs/binfmt_misc/register"] {
            assert!(refuse_code(&known(key)).is_err(), "{key}");
        }
        assert!(refuse_code(&known("net/core/somaxconn")).is_ok());
    }

    #[test]
    fn a_parameter_of_one_link_goes_alone() {
        assert_eq!(followers(&known("net/ipv4/conf/lo/forwarding")), []);
        assert_eq!(followers(&known("net/ipv4/tcp_rmem")), []);
    }
}
