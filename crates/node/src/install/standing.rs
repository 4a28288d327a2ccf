//! Whether what was installed is still there. No runtime and no kernel says when another program deletes it.

use std::fs;
use std::path::PathBuf;

use super::files::before;
use super::{InstallError, Installed, read};

/// What runtimes were given, as it can be compared without reading the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledFiles {
    program: PathBuf,
    program_bytes: u64,
    conflist: PathBuf,
    text: String,
}

impl InstalledFiles {
    /// Notes what was installed just now.
    ///
    /// # Errors
    /// The program is gone already, or cannot be looked at.
    pub fn of(installed: &Installed) -> Result<InstalledFiles, InstallError> {
        let program = installed.program.0.clone();
        let found = fs::metadata(&program).map_err(InstallError::file("look at", &program))?;
        Ok(InstalledFiles {
            program,
            program_bytes: found.len(),
            conflist: installed.conflist.0.clone(),
            text: installed.text.clone(),
        })
    }

    /// The first file that runtimes find before the configuration, in words that say what follows;
    /// `None`: there is none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn behind(&self) -> Result<Option<String>, InstallError> {
        let name = self.conflist.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let first = before(&self.conflist)?.into_iter().next();
        Ok(first.map(|first| {
            let first = first.display();
            format!("{first} comes before {name} by its name, so those that use one network use that one")
        }))
    }

    /// What is no longer so, in words: a file is gone, the configuration is another one, or the
    /// program has another size.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn lost(&self) -> Result<Option<String>, InstallError> {
        let program = match fs::metadata(&self.program) {
            Ok(found) if found.is_file() && found.len() == self.program_bytes => None,
            Ok(_) => Some(format!("{} was another program", self.program.display())),
            Err(_) => Some(format!("{} was gone", self.program.display())),
        };
        let conflist = match read(&self.conflist)? {
            Some(text) if text == self.text.as_bytes() => None,
            Some(_) => Some(format!("{} was another one", self.conflist.display())),
            None => Some(format!("{} was gone", self.conflist.display())),
        };
        let lost: Vec<String> = program.into_iter().chain(conflist).collect();
        Ok(Some(lost.join("; ")).filter(|lost| !lost.is_empty()))
    }
}
