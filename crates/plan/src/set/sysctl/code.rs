//! Parameters that no step writes: those that decide which code runs.

use linux::sysctl::Key;

use crate::error::StepError;

/// Parameters that name a program which the kernel starts as root, or say which modules and programs it takes: nothing
/// of a network needs them, and a program that can have them written owns the machine.
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

pub(super) fn refuse(key: &Key) -> Result<(), StepError> {
    if is_about_code(key.as_str()) {
        let why = format!("{key} decides which code runs, or how it is protected; hostgap never writes it");
        return Err(StepError::Refused { why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_code_is_never_written() {
        assert!(
            is_about_code("core_pattern") && is_about_code("kernel.modprobe") && is_about_code("hotplug")
        );
        assert!(!is_about_code("somaxconn") && !is_about_code("core"));
        for key in ["kernel/core_pattern", "kernel/modprobe", "fs/binfmt_misc/register"] {
            assert!(refuse(&Key::new(key).unwrap()).is_err(), "{key}");
        }
        assert!(refuse(&Key::new("net/core/somaxconn").unwrap()).is_ok());
    }
}
