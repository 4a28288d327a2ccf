//! Where the programs of a cluster are.

use std::env;

use anyhow::{Context, Result};

/// The programs that a cluster is made of, as a `PATH`.
#[derive(Debug, Clone)]
pub struct Programs {
    path: String,
}

/// Variables that hold parts of `PATH`, and what prints each part.
const VARIABLES: [(&str, &str); 3] = [
    ("HOSTGAP_KUBERNETES", "scripts/build-kubernetes"),
    ("HOSTGAP_ETCD", "scripts/fetch-etcd"),
    ("HOSTGAP_CONTAINERD", "scripts/fetch-containerd"),
];

impl Programs {
    /// Those that the environment names, before all others of this machine. `absent` is called with the script that
    /// prints a part that the environment does not name.
    ///
    /// # Errors
    /// A part is absent, or there is no `PATH`.
    pub fn from_env(absent: impl Fn(&'static str) -> Result<String>) -> Result<Self> {
        Self::some_from_env(&VARIABLES, absent)
    }

    /// The same for a control plane without nodes, which needs no containerd.
    ///
    /// # Errors
    /// As of [`Programs::from_env`].
    pub fn of_control_plane(absent: impl Fn(&'static str) -> Result<String>) -> Result<Self> {
        Self::some_from_env(&VARIABLES[..2], absent)
    }

    fn some_from_env(
        variables: &[(&str, &'static str)],
        absent: impl Fn(&'static str) -> Result<String>,
    ) -> Result<Self> {
        let part = |(variable, script): &(&str, &'static str)| {
            env::var(variable).ok().filter(|part| !part.is_empty()).map_or_else(|| absent(script), Ok)
        };
        let mut parts = variables.iter().map(part).collect::<Result<Vec<_>>>()?;
        parts.push(Self::of_this_machine()?.path);
        Ok(Self { path: parts.join(":") })
    }

    /// Those of this process's `PATH` alone.
    pub(crate) fn of_this_machine() -> Result<Self> {
        env::var("PATH").context("there is no PATH").map(Self::of)
    }

    /// The programs in the directories of this value of `PATH`.
    pub(crate) fn of(path: String) -> Self {
        Self { path }
    }

    /// The value for `PATH` with which programs are started.
    pub fn path(&self) -> &str {
        &self.path
    }
}
