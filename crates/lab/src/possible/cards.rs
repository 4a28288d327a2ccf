//! Which contenders cards can carry, and whether cards take their settings: found out by making them on two cards of
//! this machine before the race. What a card takes is its driver's to say, and a veth has not even the questions.

use linux::{IfName, NetnsName};
use plan::{ApplyError, Place, Plan, SetLinkUp, Step};
use record::Experiment;
use tune::{Lives, Nic, Setting, Settings, Site};

use crate::built_topology::AppliedPlan;
use crate::proving::is_of_card;
use crate::shape::CardWire;
use crate::{Contender, Home, LabError, card_look, cards, side_settings};

/// Says of contenders that cannot race between two such cards why; an error where one is required.
pub(crate) fn leave_out(contenders: &mut [Contender], experiment: &Experiment) -> Result<(), LabError> {
    let Some(card) = experiment.underlay.card else { return Ok(()) };
    for contender in contenders.iter_mut() {
        let Some(why) = cards::unmet(contender.path, card) else { continue };
        contender.cannot([why])?;
    }
    Ok(())
}

/// Adds to contenders why such cards do not take their settings, or do not serve their servers. The cards are as
/// before when it returns.
///
/// # Errors
/// A contender that must be able to run cannot; or a card cannot be brought up, or back.
pub fn prove_on_cards(contenders: &mut [Contender], wire: &CardWire, home: &Home) -> Result<(), LabError> {
    for contender in contenders.iter_mut().filter(|contender| contender.races()) {
        let Settings { client, server } = &contender.settings;
        let mut unmet: Vec<String> = own_stack_unmet(contender, wire).into_iter().collect();
        for (settings, card) in [(client, &wire.ends.client), (server, &wire.ends.server)] {
            unmet.extend(refused(settings, wire, card, home)?);
        }
        unmet.dedup();
        contender.cannot(unmet)?;
    }
    Ok(())
}

/// A stack of our own takes frames from the first queue of its link; the card would put those of
/// other flows into others.
fn own_stack_unmet(contender: &Contender, wire: &CardWire) -> Option<String> {
    let queues = side_settings::nic(wire.nic.clone(), &contender.settings.server).rx;
    (contender.stack.is_own() && queues > 1).then(|| {
        format!(
            "its server's stack takes frames from one queue, and the server's card has {queues}; `tune.channels = 1` leaves it one"
        )
    })
}

/// The first setting that a card refuses, with its reason. They are made together, in the order in which a topology
/// makes them: what one allows another may need.
fn refused(
    settings: &[Setting],
    wire: &CardWire,
    card: &IfName,
    home: &Home,
) -> Result<Option<String>, LabError> {
    let mut ranked: Vec<&Setting> = settings.iter().filter(|setting| is_of_card(setting.lives)).collect();
    if ranked.is_empty() {
        return Ok(None);
    }
    // A topology asks for interrupts when its card has all the rest, and carries.
    ranked.sort_by_key(|setting| (setting.lives == Lives::Interrupts, setting.rank()));
    let claim = home.claim()?;
    let name = NetnsName::new(format!("hg-{}-card", claim.id())).expect("an id is part of a name");
    let (place, wire_end) = (Place::Netns(name), IfName::new("eth0").expect("a constant name is valid"));
    let site = Site {
        process: place.clone(),
        routes: Vec::new(),
        node: place,
        wire: wire_end,
        cpus: linux::cpu::allowed()?,
        nic: side_settings::nic(wire.nic.clone(), settings),
    };
    let mut applied = AppliedPlan::begin(card.as_str(), "", &claim.dir().join("card"), |_| Ok(()))?;
    let tried = first_refused(card, &ranked, &site, &mut applied);
    // What went wrong first is why the cards may not come back.
    let undone = applied.undo();
    let refused = tried?;
    undone?;
    claim.end()?;
    Ok(refused)
}

/// In a namespace, as in a topology: a card that was up in this one would keep a queueing discipline.
fn first_refused(
    card: &IfName,
    ranked: &[&Setting],
    site: &Site,
    applied: &mut AppliedPlan,
) -> Result<Option<String>, LabError> {
    let (node, wire) = (&site.node, &site.wire);
    let mut up = Plan::new();
    up.push(node, Step::AddNetns);
    up.push(&Place::Host, Step::MoveLink { link: card.clone(), to: node.clone(), name: wire.clone() });
    up.push(node, SetLinkUp { link: wire.clone() });
    applied.apply(&up)?;
    for setting in ranked {
        let plan = match setting.lives {
            Lives::Interrupts => {
                let interrupts = card_look::interrupts_of(node, wire)?;
                setting.plan(&Site { nic: Nic { interrupts, ..site.nic.clone() }, ..site.clone() })
            }
            _ => setting.plan(site),
        };
        if setting.lives == Lives::Interrupts && plan.steps.is_empty() {
            return Ok(Some(format!(
                "{}: the card has no interrupt that belongs to a queue",
                setting.knob.id
            )));
        }
        let Err(error) = applied.apply(&plan) else { continue };
        let LabError::Build { why, .. } = &error else { return Err(error) };
        let ApplyError::Step { why, .. } = why.as_ref() else { return Err(error) };
        return Ok(Some(format!("{} = {}: {why}", setting.knob.id, setting.value)));
    }
    Ok(None)
}
