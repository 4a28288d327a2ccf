//! The runtime's side of the Container Network Interface: pods that other people's plugins join to the lab's nodes.
//!
//! What a container runtime does with a network configuration (CNI specification 1.0.0, and the versions from 0.3.0 to
//! 1.1.0, which differ in fields that are passed on as they are): each plugin is called in turn with the pod's
//! namespace and what the one before answered; at the end in the opposite order to take it back. A plugin runs in the
//! network namespace of its node, in a view of the machine's files in which only directories of the candidate are
//! writable, and in a PID namespace that ends with it. So whatever it does goes with the candidate's namespaces and
//! directory, and its own way back (DEL) is a courtesy to what it may keep elsewhere, not what the lab relies on.

mod attachment;
mod call;
mod configuration;
mod pins;
mod search;
mod values;

pub use attachment::Attachment;
pub use configuration::Configuration;
pub use search::PluginDirs;
pub(crate) use values::NodeValues;

use std::path::{Path, PathBuf};

use ::cni::Plugin;

use crate::LabError;

/// A network of CNI plugins that are all there.
#[derive(Debug, Clone)]
pub struct CniNetwork {
    /// The configuration that was asked for.
    pub configuration: Configuration,
    /// The plugins' executables, in the order of the list.
    pub programs: Vec<PathBuf>,
    /// Where plugins look for those that they call themselves.
    pub dirs: PluginDirs,
}

impl CniNetwork {
    /// Reads a configuration and finds its plugins.
    ///
    /// # Errors
    /// [`LabError::Conflist`] for a file that is none, [`LabError::NoPlugin`] for the first plugin that is missing.
    pub fn load(file: &Path, dirs: &PluginDirs) -> Result<CniNetwork, LabError> {
        CniNetwork::find(Configuration::read(file)?, dirs)
    }

    /// Finds the plugins of a configuration, those for addresses too, which the others call.
    pub fn find(configuration: Configuration, dirs: &PluginDirs) -> Result<CniNetwork, LabError> {
        let plugins = &configuration.list.plugins;
        for ipam in plugins.iter().filter_map(Plugin::ipam) {
            dirs.find(ipam)?;
        }
        let programs = plugins.iter().map(|plugin| dirs.find(&plugin.kind));
        Ok(CniNetwork { programs: programs.collect::<Result<_, _>>()?, dirs: dirs.clone(), configuration })
    }
}
