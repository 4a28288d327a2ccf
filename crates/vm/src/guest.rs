//! The scripts that run in the guest: its init, and the command as a script of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::qemu::names;
use crate::workdir::Workdir;
use crate::{Kernel, Result};

/// Writes the guest's input files into the folder of its run.
pub(crate) fn write(workdir: &Workdir, kernel: &Kernel, command: &Command) -> Result<()> {
    workdir.write(names::INIT, include_bytes!("guest/init.sh"))?;
    workdir.write("stage", include_bytes!("guest/stage.sh"))?;
    workdir.write("command", &script(command))?;
    let mut settings = Vec::new();
    for (name, value) in [
        ("folder", workdir.path().as_os_str()),
        ("release", OsStr::new(&kernel.release)),
        ("modules", kernel.modules.as_os_str()),
        ("kmod", kernel.kmod.path.as_os_str()),
        ("libraries", &kernel.kmod.libraries),
    ] {
        settings.extend_from_slice(name.as_bytes());
        settings.push(b'=');
        quote(value, &mut settings);
        settings.push(b'\n');
    }
    workdir.write("settings.sh", &settings)?;
    if let Some(early) = &kernel.early {
        let mut settings = b"init=".to_vec();
        quote(workdir.path().join(names::INIT).as_os_str(), &mut settings);
        workdir.write(names::INITRAMFS, &early.archive(&settings)?)?;
    }
    Ok(())
}

/// A script that becomes `command`.
fn script(command: &Command) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n".to_vec();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => {
                text.extend_from_slice(b"export ");
                text.extend_from_slice(name.as_bytes());
                text.push(b'=');
                quote(value, &mut text);
            }
            None => {
                text.extend_from_slice(b"unset ");
                text.extend_from_slice(name.as_bytes());
            }
        }
        text.push(b'\n');
    }
    let folder = command.get_current_dir().map_or(OsStr::new("/"), |path| path.as_os_str());
    text.extend_from_slice(b"cd ");
    quote(folder, &mut text);
    text.extend_from_slice(b" || exit 125\nexec ");
    quote(command.get_program(), &mut text);
    for argument in command.get_args() {
        text.push(b' ');
        quote(argument, &mut text);
    }
    text.push(b'\n');
    text
}

/// Appends `word` in single quotes.
fn quote(word: &OsStr, text: &mut Vec<u8>) {
    text.push(b'\'');
    for &byte in word.as_bytes() {
        if byte == b'\'' {
            text.extend_from_slice(b"'\\''");
        } else {
            text.push(byte);
        }
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell makes of the script is what the command would have done.
    #[test]
    fn script_does_what_the_command_does() {
        let mut command = Command::new("printf");
        command.args(["%s|%s|%s", "it's", "$HOME `x` \"y\" \\", ""]);
        let expected = command.output().unwrap().stdout;
        let shell = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script(&command))).output().unwrap();
        assert_eq!(String::from_utf8(shell.stdout), String::from_utf8(expected));
    }

    #[test]
    fn environment_and_folder_go_along() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $X; pwd; echo ${HOME-none}"]).env("X", "a 'b'").env_remove("HOME");
        command.current_dir("/usr");
        let shell = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script(&command))).output().unwrap();
        assert_eq!(String::from_utf8(shell.stdout).unwrap(), "a 'b'\n/usr\nnone\n");
    }
}
