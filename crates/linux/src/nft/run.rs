//! The `nft` program: tables are made and listed in a namespace.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Table;
use crate::error::{Attempt, refusal};
use crate::process::die_with_this_process;
use crate::{Error, Netns, Result, netns};

/// How long to wait for other processes that work on the same rules.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a table with all its contents, or changes nothing. `EEXIST` if the table exists.
pub fn add(netns: &Netns, table: &Table) -> Result<()> {
    let Table { family, name, .. } = table;
    let attempted = format!("add nftables table {} {name} in {}", family.name(), netns.describe());
    // `table` alone would add to an existing one.
    let made = format!("create table {} {name}\n{}", family.name(), table.to_text());
    feed(netns, made, &attempted)
}

/// Waits until no `nft` runs in the namespace, but only for a few seconds, because another program's `nft` may keep
/// running. Ours dies with its caller, but only after the kernel has finished the request, whose result is visible
/// only then.
pub fn settle(netns: &Netns) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while netns::pids_in(slice::from_ref(netns))?.into_iter().any(is_nft) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn is_nft(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "nft")
}

/// The ruleset of all families: nft's own JSON without the parts that differ between listings (handles, counters,
/// nft's version). An empty list if there are no rules.
pub fn dump(netns: &Netns) -> Result<Value> {
    let mut objects = list(netns, "ruleset")?;
    objects.iter_mut().for_each(forget_handles);
    Ok(Value::Array(objects))
}

/// The packets that the counters of a table's rules have seen, all together.
///
/// # Errors
/// There is no such table, or `nft` cannot be run.
pub fn counted(netns: &Netns, table: &Table) -> Result<u64> {
    let what = ["table", table.family.name(), &table.name];
    let rules = objects(netns, &[&["-j", "list"], &what[..]].concat(), &what.join(" "))?;
    Ok(rules
        .iter()
        .filter_map(|object| object["rule"]["expr"].as_array())
        .flatten()
        .filter_map(packets)
        .sum())
}

/// The packets of an expression that is a counter.
fn packets(expression: &Value) -> Option<u64> {
    expression.get("counter")?.get("packets")?.as_u64()
}

/// The objects of a listing without what differs between two of them.
fn list(netns: &Netns, what: &str) -> Result<Vec<Value>> {
    objects(netns, &["-j", "-s", "list", what], what)
}

fn objects(netns: &Netns, args: &[&str], what: &str) -> Result<Vec<Value>> {
    let attempted = format!("list nftables {what} in {}", netns.describe());
    let output = nft(netns, args, None).attempt(|| attempted.clone())?;
    succeeded(&output).attempt(|| attempted.clone())?;
    let mut answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::invalid(attempted, error.to_string()))?;
    let objects = match answer["nftables"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    };
    Ok(objects.into_iter().filter(|object| object.get("metainfo").is_none()).collect())
}

fn feed(netns: &Netns, commands: String, attempted: &str) -> Result<()> {
    let output = nft(netns, &["-f", "-"], Some(commands)).attempt(|| attempted)?;
    succeeded(&output).attempt(|| attempted)
}

/// Runs nft in the namespace: a process is born where the thread is that starts it.
fn nft(netns: &Netns, args: &[&str], input: Option<String>) -> io::Result<Output> {
    let mut command = Command::new("nft");
    command.args(args).env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    // A Ctrl-C at the terminal goes to the whole process group; a started change must finish so that it can be undone.
    command.process_group(0);
    // If the caller is killed meanwhile, its undo runs; nft must not add rules after that.
    die_with_this_process(&mut command)?;
    let started = netns.run(|| command.spawn()).map_err(io::Error::other)?;
    let mut child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "the program nft is not installed"),
        _ => error,
    })?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // nft reads all its input before it writes, so neither side waits for the other. If it ended before it had
        // read all, its own message below is the error.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// An error with nft's own words and, where they end in a text of the C library, its number.
fn succeeded(output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words = own_words(&stderr);
    match errno_in(&words) {
        Some(errno) => Err(refusal(errno, Some(words))),
        None => Err(io::Error::other(format!("nft: {words} ({})", output.status))),
    }
}

/// nft's own messages, without the lines that repeat the input and underline it.
fn own_words(stderr: &str) -> String {
    let said = stderr.lines().filter(|line| line.contains("Error:") || line.contains("error:"));
    let words: Vec<&str> = said.map(str::trim).collect();
    if words.is_empty() { stderr.trim().to_owned() } else { words.join("; ") }
}

fn errno_in(words: &str) -> Option<i32> {
    let numbers =
        [libc::EEXIST, libc::ENOENT, libc::EPERM, libc::EOPNOTSUPP, libc::EBUSY, libc::EINVAL, libc::EINTR];
    numbers.into_iter().find(|errno| {
        let text = io::Error::from_raw_os_error(*errno).to_string();
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        words.contains(&text)
    })
}

fn forget_handles(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("handle");
            members.values_mut().for_each(forget_handles);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_handles),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_nfts_own_words_with_their_number() {
        let stderr = "internal:0:0-0: Error: Could not process rule: File exists\n\n{\"nftables\": [\n^^^^\n";
        let words = own_words(stderr);
        assert_eq!(words, "internal:0:0-0: Error: Could not process rule: File exists");
        assert_eq!(errno_in(&words), Some(libc::EEXIST));
        assert_eq!(errno_in("Error: syntax error"), None);
    }
}
