//! Rules of iptables-legacy, which `nft` does not show: which matches and targets they use.
//!
//! Only tables that already exist are queried. A query for any other table would create it: the kernel would load its
//! module and register its hooks in the packet path.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, socket_with};

use crate::error::Attempt;
use crate::native::{u16_at, u32_at};
use crate::{Error, Result};

/// A table of iptables-legacy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegacyTable {
    /// It sees packets of IPv6; else those of IPv4.
    pub ipv6: bool,
    /// Its name: filter, nat, mangle, raw, security.
    pub name: String,
    /// The matches and targets of its rules (`conntrack`, `MASQUERADE`), each once; none in a table without rules.
    pub extensions: BTreeSet<String>,
}

/// Options of a raw socket that read a table (linux/netfilter_ipv4/ip_tables.h; the same numbers in ip6_tables.h).
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// `struct xt_getinfo`: a name, five numbers for each of two things after the mask of hooks, the entries, their bytes.
const INFO_BYTES: usize = 84;
const NAME_BYTES: usize = 32;
/// `struct ipt_get_entries`: the name, the bytes of what follows, and a gap up to the entries' alignment.
const ENTRIES_AT: usize = 40;
/// `struct xt_entry_match` and `xt_entry_target` begin with their size; these bytes hold the name.
const EXTENSION_NAME: std::ops::Range<usize> = 2..31;

/// Where a rule has what follows its addresses.
struct Layout {
    /// The place of the 16-bit offset of a rule's target; the offset of the next rule follows it.
    target_at: usize,
    /// Of its first match.
    matches: usize,
}

/// The tables of the calling thread's namespace.
///
/// # Errors
/// Without CAP_NET_ADMIN and CAP_NET_RAW there the kernel refuses.
pub fn legacy_tables() -> Result<Vec<LegacyTable>> {
    let mut tables = Vec::new();
    for (ipv6, list) in [(false, "ip_tables_names"), (true, "ip6_tables_names")] {
        let path = format!("/proc/thread-self/net/{list}");
        let names = match fs::read_to_string(&path) {
            // The kernel has no iptables-legacy, or has not loaded it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            names => names.attempt(|| format!("read {path}"))?,
        };
        for name in names.lines() {
            tables.push(LegacyTable { ipv6, name: name.to_owned(), extensions: extensions(ipv6, name)? });
        }
    }
    Ok(tables)
}

fn extensions(ipv6: bool, table: &str) -> Result<BTreeSet<String>> {
    let attempted = || format!("read table {table} of iptables-legacy");
    let (domain, layout) = match ipv6 {
        false => (AddressFamily::INET, Layout { target_at: 88, matches: 112 }),
        true => (AddressFamily::INET6, Layout { target_at: 140, matches: 168 }),
    };
    let raw = RawProtocol::new(libc::IPPROTO_RAW.cast_unsigned()).map(Protocol::from_raw);
    let socket = socket_with(domain, SocketType::RAW, SocketFlags::CLOEXEC, raw).attempt(attempted)?;
    // Between the two questions rules may be added; then the kernel refuses the second with EAGAIN.
    for _ in 0..10 {
        let info = option(&socket, ipv6, GET_INFO, request(table, INFO_BYTES)).attempt(attempted)?;
        let size = u32_at(&info, INFO_BYTES - 4).unwrap_or_default();
        let mut ask = request(table, ENTRIES_AT + size as usize);
        ask[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&size.to_ne_bytes());
        match option(&socket, ipv6, GET_ENTRIES, ask) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            entries => {
                let entries = entries.attempt(attempted)?;
                let names = names(&entries[ENTRIES_AT..], &layout);
                return names.ok_or_else(|| Error::invalid(attempted(), "its rules have another form"));
            }
        }
    }
    Err(Error::invalid(attempted(), "its rules change all the time"))
}

/// A buffer of that length that begins with the table's name.
fn request(table: &str, bytes: usize) -> Vec<u8> {
    let mut ask = vec![0; bytes];
    let name = &table.as_bytes()[..table.len().min(NAME_BYTES - 1)];
    ask[..name.len()].copy_from_slice(name);
    ask
}

fn option(socket: &OwnedFd, ipv6: bool, number: i32, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    let level = if ipv6 { libc::SOL_IPV6 } else { libc::SOL_IP };
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(io::Error::other)?;
    let data = buffer.as_mut_ptr().cast();
    // SAFETY: `data` points to `length` bytes that are ours to write, and both live until the call returns.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, number, data, &raw mut length) } {
        0 => Ok(buffer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The names in a table's rules; `None` if these are not of the form that is known.
fn names(rules: &[u8], layout: &Layout) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut rest = rules;
    while !rest.is_empty() {
        let target = usize::from(u16_at(rest, layout.target_at)?);
        let next = usize::from(u16_at(rest, layout.target_at + 2)?);
        let mut at = layout.matches;
        while at < target {
            names.insert(name(rest.get(at..target)?)?);
            at += usize::from(u16_at(rest, at)?).max(1);
        }
        names.insert(name(rest.get(target..next)?)?);
        rest = rest.get(next..)?;
    }
    // A verdict has no name, and a chain's own entry is called an error.
    names.retain(|name| !name.is_empty() && name != "ERROR");
    Some(names)
}

fn name(extension: &[u8]) -> Option<String> {
    let name = extension.get(EXTENSION_NAME)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(name: &str, bytes: usize) -> Vec<u8> {
        let mut extension = vec![0; bytes];
        extension[..2].copy_from_slice(&u16::try_from(bytes).unwrap().to_ne_bytes());
        extension[2..2 + name.len()].copy_from_slice(name.as_bytes());
        extension
    }

    fn rule(matches: &[&str], target: &str) -> Vec<u8> {
        let mut rule = vec![0; 112];
        matches.iter().for_each(|name| rule.extend(extension(name, 48)));
        let at = u16::try_from(rule.len()).unwrap();
        rule.extend(extension(target, 40));
        let next = u16::try_from(rule.len()).unwrap();
        rule[88..90].copy_from_slice(&at.to_ne_bytes());
        rule[90..92].copy_from_slice(&next.to_ne_bytes());
        rule
    }

    #[test]
    fn rules_are_walked_to_their_matches_and_targets() {
        let layout = Layout { target_at: 88, matches: 112 };
        let rules = [rule(&["tcp", "conntrack"], ""), rule(&[], "MASQUERADE"), rule(&[], "ERROR")].concat();
        let found = names(&rules, &layout).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["MASQUERADE", "conntrack", "tcp"]);
        assert_eq!(names(&[], &layout).unwrap().len(), 0);
    }

    #[test]
    fn what_is_cut_or_leads_nowhere_is_not_guessed_at() {
        let layout = Layout { target_at: 88, matches: 112 };
        let sound = rule(&["tcp"], "ACCEPT");
        for end in 1..sound.len() {
            assert_eq!(names(&sound[..end], &layout), None, "cut at {end}");
        }
        let mut endless = sound;
        endless[90..92].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(names(&endless, &layout), None);
    }
}
