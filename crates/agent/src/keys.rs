//! The key of this node's encrypted tunnels. It is made once and kept in a file of root's, so that the node is the same
//! one after a restart. All else, other nodes included, knows the public key alone.

use std::fs;
use std::path::{Path, PathBuf};

use datapath::TunnelKey;
use linux::{PrivateKey, features};

use crate::backend::BackendKind;
use crate::network::NetworkConfig;
use crate::settings::Settings;

/// The key of a node in a network, in its file.
#[derive(Debug)]
pub(crate) struct NodeKey {
    file: PathBuf,
    private: PrivateKey,
}

/// The path of the file with the private key of this node's tunnels in a network.
pub fn file(directory: &Path, network: &str) -> PathBuf {
    directory.join(format!("{network}.wireguard.key"))
}

/// Whether the network's tunnels are encrypted.
pub(crate) fn are_wanted(network: &NetworkConfig) -> bool {
    network.backend.is(BackendKind::WireGuard)
}

/// Refuses a kernel on which no key is of use.
pub(crate) fn check_kernel() -> Result<(), String> {
    features::wireguard().map_err(|unmet| {
        format!(
            "encrypt what goes to other nodes: {unmet}; load the module (modprobe wireguard), install the package of the \
             kernel that has it, or choose another `Backend.Type`"
        )
    })
}

/// The key as an agent would have it that begins now. Where there is none yet, it is a new one that is not kept.
pub(crate) fn rehearsed(settings: &Settings, network: &NetworkConfig) -> Result<Option<TunnelKey>, String> {
    if !are_wanted(network) {
        return Ok(None);
    }
    check_kernel()?;
    let key =
        NodeKey::read_or_generate(&settings.keys, &settings.network).map_err(|error| error.to_string())?;
    Ok(Some(key.tunnel_key()))
}

impl NodeKey {
    /// The key in the file; a new one where there is none.
    fn read_or_generate(directory: &Path, network: &str) -> Result<NodeKey, linux::Error> {
        let file = file(directory, network);
        // What is there and cannot be read is no reason for another key.
        let is_there = file.symlink_metadata().is_ok();
        let private = if is_there { PrivateKey::read(&file)? } else { PrivateKey::generate()? };
        Ok(NodeKey { file, private })
    }

    /// The key in the file, which is made where there is none.
    pub(crate) fn open(directory: &Path, network: &str) -> Result<NodeKey, String> {
        let key = NodeKey::read_or_generate(directory, network).map_err(|error| error.to_string())?;
        key.keep()?;
        Ok(key)
    }

    /// Whether somebody has taken the file away since.
    pub(crate) fn is_lost(&self) -> bool {
        self.file.symlink_metadata().is_err()
    }

    /// Writes the file anew where it is gone.
    pub(crate) fn keep(&self) -> Result<(), String> {
        if !self.is_lost() {
            return Ok(());
        }
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory)
                .map_err(|error| format!("make {}: {error}", directory.display()))?;
        }
        self.private.keep(&self.file).map_err(|error| error.to_string())
    }

    /// What to say of a file that is gone. It is not written anew: whoever moves it away wants another key, and the
    /// next agent may wait already.
    pub(crate) fn why_lost(&self) -> Option<String> {
        let file = self.file.display();
        self.is_lost().then(|| {
            format!(
                "{file} is gone; this agent keeps using the key that was in it, and the next agent makes another"
            )
        })
    }

    /// What plans have of it.
    pub(crate) fn tunnel_key(&self) -> TunnelKey {
        TunnelKey { file: self.file.clone(), public: self.private.public() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_root_alone() {
        let directory = tempfile::tempdir().unwrap();
        let keys = directory.path().join("agent");
        assert!(NodeKey::read_or_generate(&keys, "pods").is_ok() && !keys.exists(), "it is only rehearsed");
        let first = NodeKey::open(&keys, "pods").unwrap();
        let path = file(&keys, "pods");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(NodeKey::open(&keys, "pods").unwrap().tunnel_key(), first.tunnel_key());
        assert_ne!(NodeKey::open(&keys, "others").unwrap().tunnel_key().public, first.tunnel_key().public);
        let secret = fs::read_to_string(&path).unwrap();
        assert!(!format!("{first:?} {:?}", first.tunnel_key()).contains(secret.trim()));

        fs::remove_file(&path).unwrap();
        first.keep().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), secret);
    }

    #[test]
    fn a_file_that_holds_no_key_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), "pods");
        fs::write(&path, "c2VjcmV0").unwrap();
        let why = NodeKey::open(directory.path(), "pods").unwrap_err();
        assert!(why.contains("it has no key") && !why.contains("c2VjcmV0"), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "c2VjcmV0");
    }
}
