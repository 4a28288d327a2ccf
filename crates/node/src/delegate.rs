//! Another plugin that gives the addresses: it is called with our own input (section 4 of the specification).

use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cni::{AddResult, Attachment, Call, Command, ErrorCode, Failure, Request};
use datapath::{ATTACHES, DEVICE, DataPath, PodRoute, gateway_in};
use ipam::Reserved;
use ipnet::IpNet;
use serde_json::Value;

use crate::dropin::OWN_IPAM;
use crate::failures::{invalid_call, invalid_conf, unsupported, with_consequence};
use crate::{dropin, routes};

/// How long it may take. A DHCP server may be slow to answer, and a runtime waits for minutes.
const LIMIT: Duration = Duration::from_secs(100);
/// The plugin whose daemon asks a server by the container's interface, which is to be there before it has an address,
/// and still when the address is given back.
const BY_INTERFACE: &str = "dhcp";
/// Between two looks whether it has ended.
const END_PAUSE: Duration = Duration::from_micros(200);
/// The longest output that is read, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// A plugin for addresses, found.
#[derive(Debug)]
pub(crate) struct Delegate<'a> {
    kind: &'a str,
    program: PathBuf,
    path: &'a [PathBuf],
    request: &'a Request,
}

/// What the plugin for addresses gave a container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// One address of each family at most.
    pub(crate) addresses: Vec<Reserved>,
    /// What else the container reaches by this network.
    pub(crate) routes: Vec<PodRoute>,
    /// How the container resolves names, if it says so.
    pub(crate) dns: Option<Value>,
}

/// The `ipam.type` of a configuration that leaves addresses to another plugin. `name` is that by which our program was
/// called: with those of other plugins `host-local` is built in, and as `host-local` it is the plugin for addresses.
pub(crate) fn kind<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let kind = request.ipam()?.get("type")?.as_str()?;
    let is_built_in = kind == dropin::HOST_LOCAL && dropin::NAMES.contains(&name);
    let is_own = kind == OWN_IPAM || is_built_in || name == dropin::HOST_LOCAL;
    (!is_own).then_some(kind)
}

/// Whether a plugin for addresses speaks by the container's interface.
pub(crate) fn speaks_by_interface(kind: &str) -> bool {
    kind == BY_INTERFACE
}

impl<'a> Delegate<'a> {
    /// Finds the plugin that a configuration leaves addresses to; `None`: it leaves them to none.
    ///
    /// # Errors
    /// Code 7 if the type is no name of a file, 4 if no directory of `CNI_PATH` has it.
    pub(crate) fn find(
        request: &'a Request,
        name: &str,
        path: &'a [PathBuf],
    ) -> Result<Option<Delegate<'a>>, Failure> {
        let Some(kind) = kind(request, name) else { return Ok(None) };
        if kind.is_empty() || kind.contains('/') || kind == ".." || kind == "." {
            return Err(invalid_conf(format!("`ipam.type` is {kind:?}; the name of a plugin is expected")));
        }
        let program = path.iter().map(|directory| directory.join(kind)).find(|program| program.is_file());
        let program = program.ok_or_else(|| {
            let directories: Vec<String> = path.iter().map(|path| path.display().to_string()).collect();
            let why = format!(
                "`ipam.type` is {kind:?}, and no such plugin is in CNI_PATH ({}); {OWN_IPAM:?} is built in",
                directories.join(", ")
            );
            invalid_call(why)
        })?;
        Ok(Some(Delegate { kind, program, path, request }))
    }

    /// Whether it speaks by the container's interface.
    pub(crate) fn speaks_by_interface(&self) -> bool {
        speaks_by_interface(self.kind)
    }

    /// # Errors
    /// Code 2: it would speak by the container's interface, and none of this attach is on the wire.
    pub(crate) fn require_way(&self, path: &DataPath) -> Result<(), Failure> {
        if !self.speaks_by_interface() || path.attach.can_ask_wire() {
            return Ok(());
        }
        let able = ATTACHES.iter().chain([&DEVICE]).filter(|path| path.attach.can_ask_wire());
        let able: Vec<&str> = able.map(|path| path.name).collect();
        Err(unsupported(format!(
            "`ipam.type` is {:?}, which asks a server on the wire by the container's interface, and that of {} is not on \
             the wire; use {}",
            self.kind,
            path.name,
            able.join(" or ")
        )))
    }

    /// Asks for a container's addresses. What a failed call may have reserved is released.
    ///
    /// # Errors
    /// The plugin's own, or code 6 for a result that is none, or 2 for one that cannot be followed.
    pub(crate) fn add(&self, attachment: &Attachment) -> Result<Given, Failure> {
        let given = self.call(Command::Add, Some(attachment)).and_then(|printed| self.given(&printed));
        given.map_err(|failure| with_consequence(failure, self.del(attachment)))
    }

    /// Lets it release a container's addresses.
    pub(crate) fn del(&self, attachment: &Attachment) -> Result<(), Failure> {
        self.call(Command::Del, Some(attachment)).map(drop)
    }

    /// Asks whether a container's addresses are reserved.
    pub(crate) fn check(&self, attachment: &Attachment) -> Result<(), Failure> {
        self.call(Command::Check, Some(attachment)).map(drop)
    }

    /// Hands over a command that is about no container.
    pub(crate) fn hand_over(&self, command: Command) -> Result<(), Failure> {
        self.call(command, None).map(drop)
    }

    fn call(&self, command: Command, attachment: Option<&Attachment>) -> Result<String, Failure> {
        let text = |of: fn(&Attachment) -> String| attachment.map(of).unwrap_or_default();
        let path = std::env::join_paths(self.path).map_err(|error| invalid_call(error.to_string()))?;
        let environment = Call {
            command,
            container_id: text(|of| of.container_id.clone()),
            netns: text(|of| of.netns.clone().unwrap_or_default()),
            ifname: text(|of| of.ifname.clone()),
            args: text(|of| {
                let pairs: Vec<String> =
                    of.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
                pairs.join(";")
            }),
            path: path.to_string_lossy().into_owned(),
        };
        let mut program = Program::new(&self.program);
        program.envs(environment.environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().map_err(|error| self.failed("start", &error))?;
        let ended = converse(&mut child, self.request.to_string(), LIMIT);
        let Some((printed, status)) = ended.map_err(|error| self.failed("talk to", &error))? else {
            let why = format!("plugin {} did not end within {} s", self.program.display(), LIMIT.as_secs());
            return Err(Failure::new(ErrorCode::TRY_AGAIN_LATER, why));
        };
        if status.success() {
            return Ok(printed);
        }
        let failure = Failure::read(&printed).unwrap_or_else(|| {
            Failure::new(ErrorCode::DECODING_FAILURE, format!("it ended with {status} and no error object"))
        });
        Err(Failure { message: format!("{}: {}", self.kind, failure.message), ..failure })
    }

    fn failed(&self, attempted: &str, error: &std::io::Error) -> Failure {
        let what = format!("{attempted} plugin {}: {error}", self.program.display());
        Failure::new(ErrorCode::IO_FAILURE, what)
    }

    fn given(&self, printed: &str) -> Result<Given, Failure> {
        let said = |why: String| Failure::new(ErrorCode::DECODING_FAILURE, format!("{}: {why}", self.kind));
        let result = AddResult::read(printed).map_err(|error| said(error.to_string()))?;
        let object = result.as_json();
        let list = |key: &str| object.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut given =
            Given { dns: object.get("dns").filter(|dns| is_said(dns)).cloned(), ..Given::default() };
        for (set, ip) in list("ips").iter().enumerate() {
            let reserved = reserved(ip, set);
            given.addresses.push(reserved.ok_or_else(|| said(format!("its result has the address {ip}")))?);
        }
        let of =
            |is_v4: bool| given.addresses.iter().filter(|one| one.address.addr().is_ipv4() == is_v4).count();
        if given.addresses.is_empty() || of(true) > 1 || of(false) > 1 {
            let why = format!(
                "{}: it gave {} IPv4 and {} IPv6 addresses; an interface has one of a family",
                self.kind,
                of(true),
                of(false)
            );
            return Err(unsupported(why));
        }
        let listed = object.get("routes").unwrap_or(&Value::Null);
        given.routes = routes::read(listed, &format!("the result of {}", self.kind))?;
        Ok(given)
    }
}

/// Version 0.4.0 and older write an empty object where nothing is said.
fn is_said(dns: &Value) -> bool {
    dns.as_object().is_some_and(|dns| !dns.is_empty())
}

/// An address of a result, by default with the gateway that host-local would choose: the first address of the subnet.
fn reserved(ip: &Value, set: usize) -> Option<Reserved> {
    let address: IpNet = ip.get("address")?.as_str()?.parse().ok()?;
    let gateway = match ip.get("gateway").filter(|gateway| !gateway.is_null()) {
        Some(gateway) => gateway.as_str()?.parse::<IpAddr>().ok()?,
        // A subnet of one address has no other.
        None => Some(gateway_in(address)).filter(|first| address.contains(first)).unwrap_or(address.addr()),
    };
    Some(Reserved { address, gateway, set })
}

/// Writes the input, reads what is printed, and waits for the end. `None`: it took longer than the
/// limit, and was killed.
fn converse(
    child: &mut Child,
    input: String,
    limit: Duration,
) -> std::io::Result<Option<(String, ExitStatus)>> {
    let deadline = Instant::now() + limit;
    let mut stdin = child.stdin.take().expect("it is piped");
    // It need not read what it does not need, nor before it has printed.
    thread::spawn(move || {
        let _unread = stdin.write_all(input.as_bytes());
    });
    let output = child.stdout.take().expect("it is piped");
    let (printed, end) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        // Nothing waits for it after the limit.
        let _late = printed.send(read.map(|_count| String::from_utf8_lossy(&bytes).into_owned()));
    });
    let printed = end.recv_timeout(limit).ok().transpose()?;
    // What has closed its output may still go on.
    while let Some(printed) = &printed {
        match child.try_wait()? {
            Some(status) => return Ok(Some((printed.clone(), status))),
            None if Instant::now() < deadline => thread::sleep(END_PAUSE),
            None => break,
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(script: &str) -> Child {
        let mut shell = Program::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        shell.spawn().expect("a shell starts")
    }

    /// More than a pipe holds.
    fn input() -> String {
        "x".repeat(1 << 20)
    }

    #[test]
    fn it_need_not_read_its_input() {
        for script in ["echo yes", "echo yes; exec <&-", "echo yes; cat >/dev/null"] {
            let ended = converse(&mut begun(script), input(), LIMIT).expect("nothing fails");
            let (printed, status) = ended.expect("it ends");
            assert!(printed == "yes\n" && status.success(), "{script}: {printed} {status}");
        }
    }

    #[test]
    fn one_that_hangs_is_ended_whatever_it_reads_and_prints() {
        let limit = Duration::from_millis(50);
        for script in ["exec sleep 1000", "exec >&-; exec sleep 1000", "cat >/dev/null; exec sleep 1000"] {
            let mut child = begun(script);
            let ended = converse(&mut child, input(), limit).expect("nothing fails");
            assert!(ended.is_none(), "{script}");
            assert!(child.try_wait().is_ok_and(|status| status.is_some()), "{script}");
        }
    }
}
