//! The keys of encrypted tunnels. Each topology has its own, made for it and gone with it.

use std::path::Path;

use linux::PrivateKey;
use linux::features::Feature;
use plan::{Set, Step};

use super::Topology;
use crate::{LabError, Shape, Sides};

/// New keys for the nodes, where the data path needs some.
pub(super) fn keys(shape: &Shape) -> Result<Option<Sides<PrivateKey>>, LabError> {
    if !shape.path.needs().contains(&Feature::WireGuard) {
        return Ok(None);
    }
    Ok(Some(Sides { client: PrivateKey::generate()?, server: PrivateKey::generate()? }))
}

impl Topology {
    /// Writes the nodes' private keys to files of a directory, from which its plan takes them.
    pub(crate) fn keep_keys(&mut self, dir: &Path) -> Result<(), LabError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        for (key, node) in keys.as_ref().both().into_iter().zip(self.nodes.as_ref().both()) {
            let Some(own) = &node.tunnel_key else { continue };
            let file = dir.join(&own.file);
            key.keep(&file)?;
            for placed in &mut self.plan.steps {
                match &mut placed.step {
                    Step::Set(Set::WireGuard(set)) if set.public == own.public => set.key_file = file.clone(),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
