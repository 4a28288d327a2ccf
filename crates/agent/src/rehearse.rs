//! What an agent would make of a node, found out without making it.

use std::collections::BTreeMap;

use node::Home;
use plan::Plan;

use crate::cloud::{self, Preview, Wish};
use crate::desired::{Desired, DesiredPeer, Node, Undecided, desired, wish};
use crate::installation::{KnownFacts, check_environment, installation};
use crate::keep::{ProbeResults, network_of, node};
use crate::keys;
use crate::lease::Snapshot;
use crate::network::NetworkConfig;
use crate::settings::Settings;
use crate::status::Status;

/// What an agent would make of a snapshot on a node where nothing stands, as commands that a person would type. Where
/// the network has a cloud's route tables, they are asked for.
///
/// # Errors
/// In words: what the source says cannot be, or the node cannot be looked at.
pub async fn preview(settings: &Settings, home: &Home, snapshot: &Snapshot) -> Result<Vec<String>, String> {
    let mut found = ProbeResults::default();
    let mut commands = Vec::new();
    let (network, _) = wanted(settings, home, snapshot, &found)?;
    let place = Status::known_place(settings);
    let node = node(settings, home, &found, place.as_ref(), Home::preview_number_of_link)?;
    if let Some(Wish::Routes(wanted)) = wish(&node, &network, snapshot) {
        let preview = cloud::preview(&settings.cloud, &settings.network, &wanted).await;
        let Preview { calls, view } = preview.map_err(|error| error.in_words())?;
        commands.extend(view.failed.iter().map(|why| format!("# {why}")));
        commands.extend(calls.iter().map(ToString::to_string));
        found.cloud = view;
    }
    let (_, wanted) = wanted(settings, home, snapshot, &found)?;
    for (name, peer) in &wanted.peers {
        if let DesiredPeer::Refused(why) = peer {
            commands.push(format!("# node {name} would not be reached: {why}"));
        }
    }
    commands.extend(wanted.parts.values().flat_map(Plan::commands));
    Ok(commands)
}

/// Whether an agent could bring this node to a snapshot, as far as that is known without doing it.
///
/// # Errors
/// In words, why not.
pub(crate) fn rehearse(
    settings: &Settings,
    home: &Home,
    snapshot: &Snapshot,
    facts: &mut KnownFacts,
) -> Result<(), String> {
    let before = Status::read(&Status::path(&settings.status, &settings.network));
    settings.check_services(before.is_ok_and(|status| status.services.is_some())).map_err(|error| {
        let remedy = error.remedy().map(|remedy| format!("; {remedy}"));
        format!("it could not {error}{}", remedy.unwrap_or_default())
    })?;
    let (network, wanted) = wanted(settings, home, snapshot, &ProbeResults::default())?;
    if settings.services.is_some() && snapshot.services.is_none() {
        return Err(Undecided::SERVICES.to_string());
    }
    check_environment(home, &settings.subnet_env, &settings.network)?;
    let Some(dirs) = &settings.runtime else { return Ok(()) };
    let place = Status::known_place(settings);
    let found = ProbeResults::default();
    let Node { wire, .. } = node(settings, home, &found, place.as_ref(), Home::preview_number_of_link)?;
    let conf = settings.pods(home, &snapshot.own, &network, wanted.mtu, &wire);
    installation(home, facts.of(&conf)?, dirs, &conf).preview().map(drop).map_err(|error| error.to_string())
}

/// What a node on which nothing stands is to have.
fn wanted(
    settings: &Settings,
    home: &Home,
    snapshot: &Snapshot,
    found: &ProbeResults,
) -> Result<(NetworkConfig, Desired), String> {
    let network = network_of(snapshot).map_err(|why| why.to_string())?;
    settings.check_backend(&network)?;
    let tunnel_key = keys::rehearsed(settings, &network)?;
    let place = Status::known_place(settings);
    let node = node(settings, home, found, place.as_ref(), Home::preview_number_of_link)?;
    let node = Node { tunnel_key, ..node };
    let wanted = desired(&node, &network, snapshot, &BTreeMap::new()).map_err(|why| why.to_string())?;
    Ok((network, wanted))
}
