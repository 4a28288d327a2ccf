//! Files that make the settings again after a restart, and when a link appears again.
//!
//! Kernel parameters go into a file of sysctl.d. Other settings (rings, queues, interrupts, properties of routes) have
//! no standard file on all systems. So all settings also go into a profile, which a unit of ours applies when the link
//! appears. Files of other programs are not changed.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linux::Files;
use linux::sysctl::Configured;
use plan::OpenTransaction;
use tune::{Lives, Setting, WantedSetting};

use crate::managers::KEPT_SYSCTL;
use crate::{Description, HostError, NotKept, Proposal, Skipped, WantedText};

const MODULES: &str = "etc/modules-load.d/hostgap.conf";
const PROFILE: &str = "etc/hostgap/tune.toml";
const UNITS: &str = "etc/systemd/system";
const UNIT: &str = "hostgap-tune@.service";
const HEAD: &str = "# Made by `hostgap tune keep`; `hostgap tune keep --forget` removes it.\n";

/// The settings of a tuning that can be made again at the next start, and what that takes.
#[derive(Debug)]
pub struct KeptTuning {
    description: Description,
    /// Modules that must be loaded before.
    modules: Vec<String>,
    /// Kernel parameters that a file of sysctl.d sets, with their values.
    parameters: Vec<(&'static str, String)>,
}

/// The files that keep a tuning, up to five, each with a header that names hostgap.
#[derive(Debug)]
pub struct KeptFiles {
    root: PathBuf,
}

impl KeptTuning {
    /// The settings of a tuning that can be made again at the next start, and what that takes.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: it is of a named namespace, which does not survive a restart, or has a setting that
    /// this program does not know. Others: those of [`Description::read`].
    pub fn of(standing: &OpenTransaction) -> Result<KeptTuning, HostError> {
        let description = Description::read(standing)?;
        if let Some(name) = &description.netns {
            let text = format!("namespace {name} does not survive a restart, and neither can its settings");
            return Err(HostError::BadRequest(text));
        }
        let wanted: Vec<WantedSetting> =
            description.settings.iter().map(WantedText::read).collect::<Result<_, _>>()?;
        // A line of sysctl.d would also lower a value that a later kernel has raised. So settings with `at_least` are
        // left to the unit, which compares first.
        let is_fixed = |wanted: &&WantedSetting| !wanted.at_least || description.device.is_none();
        let parameters = wanted.iter().filter(is_fixed).filter_map(|one| parameter(&one.setting)).collect();
        let modules = modules(&wanted);
        Ok(KeptTuning { description, modules, parameters })
    }

    /// The name of the link whose unit applies the profile, if there is one.
    pub fn link(&self) -> Option<&str> {
        self.description.device.as_ref().map(|device| device.name.as_str())
    }

    fn profile(&self) -> String {
        let mut text = format!("{HEAD}schema = 1\nabout = \"What `hostgap tune keep` keeps.\"\n");
        for WantedText { knob, value, at_least, route, why } in &self.description.settings {
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
}

impl KeptFiles {
    /// Those of the system whose files are below `root`.
    pub fn below(root: &Path) -> KeptFiles {
        KeptFiles { root: root.to_owned() }
    }

    /// The profile with all settings.
    pub fn profile(&self) -> PathBuf {
        self.root.join(PROFILE)
    }

    /// Makes systemd read its units again, so that a link that appears before the next restart gets its settings too.
    /// False: it runs this system, and did not.
    pub fn reload(&self) -> bool {
        // sd_booted(3).
        if self.root != Path::new("/") || !Path::new("/run/systemd/system").exists() {
            return true;
        }
        let reloaded = Command::new("systemctl").arg("daemon-reload").stdin(Stdio::null()).status();
        reloaded.is_ok_and(|status| status.success())
    }

    /// Writes them, and returns their paths. `own` is the program that the unit starts.
    ///
    /// # Errors
    /// [`HostError::File`]: one cannot be written; those before it are there.
    pub fn write(&self, kept: &KeptTuning, own: &Path) -> Result<Vec<PathBuf>, HostError> {
        let parameters: String =
            kept.parameters.iter().map(|(key, value)| format!("{} = {value}\n", dotted(key))).collect();
        let modules: String = kept.modules.iter().map(|name| format!("{name}\n")).collect();
        let mut written = Vec::new();
        for (path, lines) in [(KEPT_SYSCTL, parameters), (MODULES, modules)] {
            if !lines.is_empty() {
                written.push(self.file(path, &format!("{HEAD}{lines}"))?);
            }
        }
        written.push(self.file(PROFILE, &kept.profile())?);
        let Some(device) = kept.link() else { return Ok(written) };
        written.push(self.file(&format!("{UNITS}/{UNIT}"), &unit(own))?);
        let instance = escaped(device);
        let wants = self.root.join(format!("{UNITS}/sys-subsystem-net-devices-{instance}.device.wants"));
        fs::create_dir_all(&wants).map_err(failed("create", &wants))?;
        let link = wants.join(format!("hostgap-tune@{instance}.service"));
        let _ = fs::remove_file(&link);
        symlink(format!("/{UNITS}/{UNIT}"), &link).map_err(failed("link", &link))?;
        written.push(link);
        Ok(written)
    }

    /// Compares what was written with the host: the profile must not change anything `now`. Each sentence says what
    /// would not be as it is.
    ///
    /// # Errors
    /// [`HostError::Linux`]: the files that set kernel parameters cannot be read.
    pub fn faults(&self, kept: &KeptTuning, now: &Proposal) -> Result<Vec<String>, HostError> {
        let mut faults = Vec::new();
        for change in &now.changes {
            let steps = change.steps.iter().map(|(_, preview)| (&preview.old, &preview.new));
            if let Some((old, new)) = steps.chain(change.held.iter().map(|(old, new)| (old, new))).next() {
                let knob = change.wanted.setting.knob.id;
                faults.push(format!("{knob} is {old} now and would become {new}"));
            }
        }
        for Skipped { knob, why, .. } in &now.skipped {
            faults.push(format!("{knob} could not be set again: {why}"));
        }
        for NotKept { setting, why } in &kept.description.not_kept {
            faults.push(format!("{} = {} is not kept: {why}", setting.knob, setting.value));
        }
        // The unit starts with its link. Without a link there is no unit, and nothing applies the profile.
        let is_written = |setting: &Setting| {
            parameter(setting)
                .is_some_and(|(key, _)| kept.parameters.iter().any(|(written, _)| *written == key))
        };
        let wanted = now.changes.iter().map(|change| &change.wanted).chain(&now.already);
        for wanted in wanted.filter(|wanted| now.host.device.is_none() && !is_written(&wanted.setting)) {
            let knob = wanted.setting.knob.id;
            faults.push(format!("{knob} is not kept: there is no link whose unit could set it (--dev)"));
        }
        let configured = Configured::read(&Files::at(&self.root))?;
        for (key, _) in &kept.parameters {
            let winner = configured.of(key).pop().map(|line| line.file.trim_start_matches('/'));
            if let Some(file) = winner.filter(|file| *file != KEPT_SYSCTL) {
                let (file, key) = (self.root.join(file), dotted(key));
                faults.push(format!("{} also sets {key}, is read later, and wins", file.display()));
            }
        }
        Ok(faults)
    }

    /// Whether a tuning is kept.
    pub fn exist(&self) -> bool {
        self.profile().exists()
    }

    /// Removes them, and returns their number.
    ///
    /// # Errors
    /// [`HostError::File`]: one cannot be removed.
    pub fn forget(&self) -> Result<usize, HostError> {
        let mut ours: Vec<PathBuf> =
            [KEPT_SYSCTL, MODULES, PROFILE].iter().map(|path| self.root.join(path)).collect();
        let units = self.root.join(UNITS);
        ours.push(units.join(UNIT));
        let folders = fs::read_dir(units).into_iter().flatten().flatten();
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
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("remove", &path)(error)),
            }
        }
        Ok(removed)
    }

    fn file(&self, path: &str, text: &str) -> Result<PathBuf, HostError> {
        let path = self.root.join(path);
        let folder = path.parent().expect("all are below the root");
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        fs::write(&path, text).map_err(failed("write", &path))?;
        Ok(path)
    }
}

fn failed(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HostError {
    move |why| HostError::File { attempted, path: path.to_owned(), why }
}

/// A setting as a kernel parameter and its value, if it is one.
fn parameter(setting: &Setting) -> Option<(&'static str, String)> {
    let (Lives::Sysctl(key) | Lives::Machine(key)) = setting.lives else { return None };
    // sysctl.d would need CPUs as a mask, which depends on the machine: the unit sets them.
    (setting.knob.kind != tune::ValueKind::Cpus).then(|| (key, setting.value.to_string()))
}

/// The parameter with dots. None of ours contains the name of a link, which may have dots itself.
fn dotted(key: &str) -> String {
    key.replace('/', ".")
}

/// Modules that must be loaded before the parameters are set.
fn modules(wanted: &[WantedSetting]) -> Vec<String> {
    let mut modules = Vec::new();
    for WantedSetting { setting, .. } in wanted {
        match setting.lives {
            Lives::Machine(key) | Lives::Sysctl(key) if key.starts_with("net/netfilter/") => {
                modules.push("nf_conntrack".to_owned());
            }
            _ if setting.knob.kind == tune::ValueKind::Algorithm => {
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
