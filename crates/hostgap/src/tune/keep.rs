//! `hostgap tune keep`: files that make the settings again after a restart, and when a link appears again.
//!
//! Kernel parameters go into a file of sysctl.d. Other settings (rings, queues, interrupts, properties of routes) have
//! no standard file on all systems. So all settings also go into a profile, which a unit of ours applies when the link
//! appears. Files of other programs are not changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use ::record::Asked;
use ::tune::{Lives, Setting};
use anyhow::Context;
use linux::Files;
use linux::sysctl::Configured;
use plan::{Account, Phase, Standing};
use serde::Deserialize;

use super::proposal::Proposal;
use super::{StateArgs, description, request};
use crate::exit::{self, BadInput};
use crate::speak;

/// The file of kernel parameters. The last name over all directories wins, so an administrator's 99-… takes precedence.
pub(super) const SYSCTL_FILE: &str = "90-hostgap.conf";
const SYSCTL: &str = "etc/sysctl.d/90-hostgap.conf";
const MODULES: &str = "etc/modules-load.d/hostgap.conf";
const PROFILE: &str = "etc/hostgap/tune.toml";
const UNITS: &str = "etc/systemd/system";
const UNIT: &str = "hostgap-tune@.service";
const HEAD: &str = "# Made by `hostgap tune keep`; `hostgap tune keep --forget` removes it.\n";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Remove the files. The settings stay until the next restart.
    #[arg(long)]
    forget: bool,
    /// Write below this directory, for an image of another system.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    state: StateArgs,
}

/// A setting of the tuning.
#[derive(Deserialize)]
struct Kept {
    knob: String,
    value: String,
    #[serde(default)]
    at_least: bool,
    #[serde(default)]
    route: Option<String>,
    why: String,
}

/// `hostgap tune keep`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.forget {
        let removed = forget(&args.root)?;
        reload(&args.root);
        speak::result(format_args!("{removed} files removed."))?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = args.state.store();
    let Some(standing) = store.standing()? else {
        return Err(BadInput("there is no tuning to keep: apply and confirm one first".to_owned()).into());
    };
    if standing.phase != Phase::Confirmed || store.account()? == Account::Restarted {
        let text = format!("tuning {} is not confirmed: run `hostgap tune confirm` first", standing.id);
        return Err(BadInput(text).into());
    }
    if let Some(name) = standing.about["netns"].as_str() {
        let text = format!("namespace {name} does not survive a restart, and neither can its settings");
        return Err(BadInput(text).into());
    }
    let kept: Vec<Kept> = serde_json::from_value(standing.about["settings"].clone())
        .context("could not read the tuning's settings")?;
    let device = standing.about["device"]["name"].as_str().map(str::to_owned);
    let settings: Vec<Setting> = kept
        .iter()
        .map(|kept| Setting::asked(&kept.knob, &Asked::Text(kept.value.clone())))
        .collect::<Result<_, _>>()
        .map_err(|error| BadInput(error.to_string()))?;
    // Removes everything of a tuning that was kept before.
    forget(&args.root)?;
    // A line of sysctl.d would also lower a value that a later kernel has raised. So settings with `at_least` are left
    // to the unit, which compares first.
    let fixed = |(kept, setting): (&Kept, &Setting)| {
        (!kept.at_least || device.is_none()).then(|| parameter(setting)).flatten()
    };
    let parameters: Vec<_> = kept.iter().zip(&settings).filter_map(fixed).collect();
    write(&args.root, &kept, &parameters, &modules(&settings), device.as_deref())?;
    reload(&args.root);
    verify(args, &standing, device, &parameters)
}

/// Whether `keep` has written files.
pub(super) fn is_kept(root: &Path) -> bool {
    root.join(PROFILE).exists()
}

/// Makes systemd read its units again, so that a link that appears before the next restart gets its settings too.
fn reload(root: &Path) {
    // sd_booted(3).
    if root != Path::new("/") || !Path::new("/run/systemd/system").exists() {
        return;
    }
    let reloaded = Command::new("systemctl").arg("daemon-reload").stdin(Stdio::null()).status();
    if !reloaded.is_ok_and(|status| status.success()) {
        speak::aside("systemd did not reload its units: run `systemctl daemon-reload`.");
    }
}

fn write(
    root: &Path,
    kept: &[Kept],
    parameters: &[(&str, String)],
    modules: &[String],
    device: Option<&str>,
) -> anyhow::Result<()> {
    let parameters: String =
        parameters.iter().map(|(key, value)| format!("{} = {value}\n", dotted(key))).collect();
    if !parameters.is_empty() {
        file(root, SYSCTL, &format!("{HEAD}{parameters}"))?;
    }
    let modules: String = modules.iter().map(|name| format!("{name}\n")).collect();
    if !modules.is_empty() {
        file(root, MODULES, &format!("{HEAD}{modules}"))?;
    }
    file(root, PROFILE, &profile(kept))?;
    let Some(device) = device else { return Ok(()) };
    let own = std::env::current_exe().context("could not find this executable")?;
    let unit = file(root, &format!("{UNITS}/{UNIT}"), &unit(&own))?;
    let instance = escaped(device);
    let wants = root.join(format!("{UNITS}/sys-subsystem-net-devices-{instance}.device.wants"));
    fs::create_dir_all(&wants).with_context(|| format!("could not create {}", wants.display()))?;
    let link = wants.join(format!("hostgap-tune@{instance}.service"));
    let _ = fs::remove_file(&link);
    let target = Path::new("/").join(unit.strip_prefix(root).unwrap_or(&unit));
    symlink(&target, &link).with_context(|| format!("could not link {}", link.display()))?;
    speak::result(link.display())?;
    Ok(())
}

/// Compares the written profile with the host: it must not change anything now.
fn verify(
    args: &Args,
    standing: &Standing,
    device: Option<String>,
    parameters: &[(&str, String)],
) -> anyhow::Result<ExitCode> {
    let path = args.root.join(PROFILE);
    let profile = Some(path.display().to_string());
    let proposal =
        Proposal::of(&request::RequestArgs { profile, dev: device, ..request::RequestArgs::default() })?;
    let mut sound = true;
    for change in &proposal.changes {
        let steps = change.steps.iter().map(|(_, preview)| (&preview.old, &preview.new));
        let Some((old, new)) = steps.chain(change.held.iter().map(|(old, new)| (old, new))).next() else {
            continue;
        };
        speak::aside(format_args!(
            "{} is {} now and would become {}",
            change.wanted.setting.knob.id, old, new
        ));
        sound = false;
    }
    for (setting, why) in &proposal.skipped {
        speak::aside(format_args!("{} could not be set again: {why}", setting.knob.id));
        sound = false;
    }
    for (setting, why) in description::not_kept(standing) {
        speak::aside(format_args!("{setting} is not kept: {why}"));
        sound = false;
    }
    // The unit starts with its link. Without a link there is no unit, and nothing applies the profile.
    let is_written = |setting: &Setting| {
        parameter(setting).is_some_and(|(key, _)| parameters.iter().any(|(written, _)| *written == key))
    };
    let wanted = proposal.changes.iter().map(|change| &change.wanted).chain(&proposal.already);
    for wanted in wanted.filter(|wanted| proposal.host.device.is_none() && !is_written(&wanted.setting)) {
        let knob = wanted.setting.knob.id;
        speak::aside(format_args!("{knob} is not kept: there is no link whose unit could set it (--dev)"));
        sound = false;
    }
    let configured = Configured::read(&Files::at(&args.root))?;
    for (key, _) in parameters {
        let winner = configured.of(key).pop().map(|line| line.file.as_str());
        if let Some(file) = winner.filter(|file| file.trim_start_matches('/') != SYSCTL) {
            let file = args.root.join(file.trim_start_matches('/'));
            speak::aside(format_args!(
                "{} also sets {}, is read later, and wins",
                file.display(),
                dotted(key)
            ));
            sound = false;
        }
    }
    if !sound {
        return Ok(ExitCode::from(exit::INVALID));
    }
    speak::result(format_args!("Tuning {} is applied again at every start.", standing.id))?;
    Ok(ExitCode::SUCCESS)
}

/// A setting as a kernel parameter and its value, if it is one.
fn parameter(setting: &Setting) -> Option<(&'static str, String)> {
    let (Lives::Sysctl(key) | Lives::Machine(key)) = setting.lives else { return None };
    // sysctl.d would need CPUs as a mask, which depends on the machine: the unit sets them.
    (setting.knob.kind != ::tune::Kind::Cpus).then(|| (key, setting.value.to_string()))
}

/// The parameter with dots. None of ours contains the name of a link, which may have dots itself.
fn dotted(key: &str) -> String {
    key.replace('/', ".")
}

/// Modules that must be loaded before the parameters are set.
fn modules(settings: &[Setting]) -> Vec<String> {
    let mut modules = Vec::new();
    for setting in settings {
        match setting.lives {
            Lives::Machine(key) | Lives::Sysctl(key) if key.starts_with("net/netfilter/") => {
                modules.push("nf_conntrack".to_owned());
            }
            _ if setting.knob.kind == ::tune::Kind::Algorithm => {
                modules.push(format!("tcp_{}", setting.value));
            }
            _ => {}
        }
    }
    modules.sort();
    modules.dedup();
    // Every kernel has these two.
    modules.retain(|name| name != "tcp_cubic" && name != "tcp_reno");
    modules
}

fn profile(kept: &[Kept]) -> String {
    let mut text = format!("{HEAD}schema = 1\nabout = \"What `hostgap tune keep` keeps.\"\n");
    for Kept { knob, value, at_least, route, why } in kept {
        // A string of JSON is one of TOML.
        let [value, why] = [value, why].map(|text| serde_json::Value::from(text.as_str()));
        text += &format!("\n[[set]]\nknob = \"{knob}\"\nvalue = {value}\nwhy = {why}\n");
        if *at_least {
            text += "at_least = true\n";
        }
        text.extend(route.iter().map(|route| format!("route = \"{route}\"\n")));
    }
    text
}

/// The unit starts and stops with its link, so it starts again when the link appears again. The link's routes come
/// later, for example by DHCP.
fn unit(own: &Path) -> String {
    format!(
        "{HEAD}[Unit]
Description=Network settings of hostgap for %I
BindsTo=sys-subsystem-net-devices-%i.device
After=sys-subsystem-net-devices-%i.device systemd-sysctl.service network.target irqbalance.service tuned.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={} tune apply --confirmed --wait 60s --dev %I /{PROFILE}
KillMode=process

[Install]
WantedBy=sys-subsystem-net-devices-%i.device
",
        own.display()
    )
}

/// A name escaped as in names of units (systemd.unit(5), "string escaping").
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.".contains(&byte);
    let one = |(at, byte): (usize, u8)| {
        if plain(byte) && !(at == 0 && byte == b'.') {
            char::from(byte).to_string()
        } else {
            format!("\\x{byte:02x}")
        }
    };
    name.bytes().enumerate().map(one).collect()
}

fn file(root: &Path, path: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = root.join(path);
    let folder = path.parent().expect("all are below the root");
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    speak::result(path.display())?;
    Ok(path)
}

/// Removes the files that `keep` has written, and returns their number.
fn forget(root: &Path) -> anyhow::Result<usize> {
    let mut ours: Vec<PathBuf> = [SYSCTL, MODULES, PROFILE].iter().map(|path| root.join(path)).collect();
    ours.push(root.join(UNITS).join(UNIT));
    let folders = fs::read_dir(root.join(UNITS)).into_iter().flatten().flatten();
    for folder in folders.filter(|entry| entry.file_name().to_string_lossy().ends_with(".device.wants")) {
        let links = fs::read_dir(folder.path()).into_iter().flatten().flatten();
        let is_ours = |name: &str| name.starts_with("hostgap-tune@") && name.ends_with(".service");
        ours.extend(
            links.filter(|link| is_ours(&link.file_name().to_string_lossy())).map(|link| link.path()),
        );
    }
    let mut removed = 0;
    for path in ours {
        match fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("could not remove {}", path.display())),
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_systemd_does() {
        assert_eq!(escaped("eth0"), "eth0");
        assert_eq!(escaped("br-lan"), "br\\x2dlan");
        assert_eq!(escaped("eth0.5"), "eth0.5");
        assert_eq!(escaped(".a"), "\\x2ea");
    }
}
