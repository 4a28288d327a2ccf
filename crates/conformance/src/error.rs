//! Why a plugin cannot be put to cases at all.

use std::path::PathBuf;

use cni::ConflistError;

/// Why no case could be run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ConformanceError {
    /// There is no such program.
    #[error("find the plugin {program}: it is not an executable file")]
    NoPlugin { program: PathBuf },
    /// The program would not be seen.
    #[error("call the plugin {program}: it lies below /run, which cases have to themselves")]
    Hidden { program: PathBuf },
    /// A plugin that is called before it is in no directory.
    #[error(
        "find {kind}, which the configuration calls before the plugin: it is in none of the directories {dirs}"
    )]
    NoPredecessor { kind: String, dirs: String },
    /// The file is no network configuration.
    #[error("use the configuration: {source}")]
    Conf { source: ConflistError },
    /// The configuration is one of other plugins.
    #[error("use the configuration: none of its plugins is of type {name:?}; it has {kinds}")]
    NotInConf { name: String, kinds: String },
    /// The plugin has no default configuration.
    #[error("choose a configuration for {name:?}: there is a default for {known} only")]
    NoDefault { name: String, known: String },
    /// The machine refuses namespaces.
    #[error(transparent)]
    Linux(#[from] linux::Error),
}
