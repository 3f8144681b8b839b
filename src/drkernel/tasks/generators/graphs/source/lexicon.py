"""Invented names and sentences: what a task says that cannot be known by heart, so that it has to be read."""

from __future__ import annotations

import builtins
import keyword
import random
import re

from torch import nn

_TEXT = """
able access acoustic active actor adapter address agent album alpha amber anchor angle antenna apple arch archive area
arm array arrow asset atlas atom audio aurora author axis badge balance band bank barrel base basin battery bay beacon
beam bean bell belt bench beta bin birch bit blade blend blob bloom board body bolt bond bonus border bottle bound
bowl brain branch brand brass bread breeze brick bridge bright broker bronze brush bucket budget buffer bundle burst
bus button cabin cable cache camera candle canvas cape capital carbon card cargo carry case cast castle cave cedar
cell center chain chalk chamber channel chart chest chip choir chord circle city claim clay clean clerk cliff clock
cloud cluster coach coal coast coat cobalt code coil coin color column comet copper coral core corner cotton count
course court cover craft crane crater cream credit creek crest crop cross crown crystal cube cup curl current curve
cycle dash data dawn deal deck deep delta demand dense desk dial diet digit disk dock domain door dot draft drain
dream drift drive drop drum duct dune dust eagle earth echo edge effect elder elm ember energy engine entry epoch
error event face factor fan farm feather fern fiber field figure film filter final fire flag flame flare flat fleet
flint float floor flow flute foam focus fog folder force forest fork form fort frame fresh front frost fruit fuel
funnel fuse gain galaxy gallery gap garden gas gate gauge gear gem glass glide globe glow goal gold grain grand grape
graph grass gravel green grid grip group grove guard guest guide gulf habit hall halo hand harbor harp haven hazel
head heart heat height hill hinge hive hold holly honey hook horizon horn host hour hub hull hunt ice icon image index
inlet ink inner iris iron island item ivory jade jar jet joint journal judge jump junction keel kernel key kiln kite
knob knot label lace ladder lake lamp lane lantern lap latent launch lava layer leaf ledge left lemon lens level lever
light lily limb limit line link lion list load lobby local lock lodge log logit loop lot lotus lower lumen lunar
machine magnet main map maple marble margin mark market marsh mask mast match matter meadow measure media mentor merge
mesh metal meter middle mill mine mint mirror mist mode model module moment moon moss motion motor mount mouth nest
net nickel night node noise north note nozzle number oak oasis object ocean offer olive onset opal orbit orchard order
origin outer oven oxide pace page paint palm panel paper parcel park part pass path patch pattern peak pearl pedal
penalty pepper phase photo piano piece pier pilot pin pine pipe pitch pivot pixel place plain planet plank plant plate
plaza plot plume point polar pole pond pool port post power press price primary prime prism probe profile proof pulse
pump quad quarry quartz query queue quill quota rack radar radius rail rain ramp ranch range rank rate ratio raven ray
reach recall record reef region relay remote rest ribbon ridge rim ring river road robin rock roof room root rope rose
rotor round route row ruby rule runway sail salt sample sand scale scene scope score scout screen sea seal season seat
second seed segment sensor set shade shaft share sheet shelf shell shift shore side sieve signal silk silver site size
skill sky slice slope slot smoke snow soil solar sonar source south space span spark speed spice spike spiral spoke
spot spring spur square stack staff stage stair stamp stand star state station steam steel stem step stone storage
storm stream street strip studio style summit sun surface swan switch symbol syrup table tail tank tap target team
tempo tent term theta thread tide tile timber time tip tissue title token tone tool top torch total tower track trade
trail train tree trend trial tube tulip tune tunnel turbine turn twig twin unit upper valley value valve vapor vault
vector vein velvet vent verse vessel view vine violet vision voice volt volume wagon walnut wave wax weather web wedge
weight well west wheel width willow wind window wing winter wire wolf wood word work yard year yield zebra zero zeta
zinc zone embed attn hidden proj feat chan dims units slots heads blocks bias gamma sigma omega kappa tau temp
"""
WORDS: tuple[str, ...] = tuple(re.findall(r"\w+", _TEXT))
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PREFIXES = ("n", "num", "use", "max", "my", "in", "out", "the", "base", "total", "d", "is")
_MODULES = ("torch", "nn", "F", "tl", "triton", "math", "np", "numpy", "typing", "Optional", "Model", "ModelNew")
_OF_ANSWERS = (
    *("grid", "meta", "size", "configs", "att", "mask", "rms", "mean", "norm", "scale", "times", "larger", "smaller"),
    *("log_add", "OUT", "out", "result", "device", "dtype", "shape", "get_inputs", "get_init_inputs", "forward"),
)
FORBIDDEN = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *dir(nn.Module()), *_MODULES, *_OF_ANSWERS, "self", "cls"}
)
"""What no invented name may be."""
_KERNEL = re.compile(r"(\w+_)?kernel\d*")


def invented(rng: random.Random, case: str = "lower") -> str:
    """An identifier that nobody knows: `lower`, `upper` or `class` says how it is written."""
    while True:
        name = _cased(_parts(rng), case, rng)
        if is_free(name):
            return name


def is_free(name: str) -> bool:
    """Whether an invented name may be this one."""
    short = len(name) < 2 or (len(name) < 4 and name != name.lower())
    return not short and name not in FORBIDDEN and name.lower() not in FORBIDDEN and not _KERNEL.fullmatch(name.lower())


def _parts(rng: random.Random) -> list[str]:
    word = rng.choice(WORDS)
    match rng.randrange(10):
        case 0 | 1:
            return [word]
        case 2 | 3:
            return [word, rng.choice(WORDS)]
        case 4:
            return [_short(word, rng)]
        case 5:
            return [_short(word, rng), _short(rng.choice(WORDS), rng)]
        case 6:
            return [f"{word}{rng.randrange(10)}"]
        case 7:
            return [rng.choice(_PREFIXES), word]
        case 8:
            return ["".join(rng.choices(_LETTERS, k=rng.choice((2, 3, 3, 4, 5))))]
        case _:
            return [word, rng.choice(_LETTERS) + rng.choice(("", "1", "2", "0"))]


def _short(word: str, rng: random.Random) -> str:
    """An abbreviation: the beginning, or the consonants."""
    if rng.random() < 0.5 or len(word) < 4:
        return word[: rng.choice((3, 4))]
    return word[0] + "".join(letter for letter in word[1:] if letter not in "aeiou")


def _cased(parts: list[str], case: str, rng: random.Random) -> str:
    if case == "class":
        return "".join(part.capitalize() for part in parts)
    if case == "upper":
        return "_".join(parts).upper()
    if rng.random() < 0.08:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "_".join(parts)


_ENDINGS = ("changes nothing", "is kept as it was", "came from an older version", "was measured twice", "is public")
_ASIDES = (
    *("TODO: check the {a} of the {b}", "the {a} {end}", "{a} before {b}", "see the {a} notes, section {n}"),
    *("was {n} before the {a} was moved", "{a} and {b} agree up to {f}", "not used by the {a} since {n}", "{a}: {b}?"),
    *("same {a} as in the {b} of {n}", "the {b} expects a {a} of {n}", "{f} was too small for the {a}"),
    *(
        "keep this in step with {a}_{b}",
        "NOTE: {a} {end}",
        "the {a} of a {b}, for {n} of them",
        "tested with {n} and {f}",
    ),
)


def aside(rng: random.Random) -> str:
    """A sentence that has nothing to do with what the task computes."""
    numbers = {"n": rng.choice((rng.randrange(2, 10), rng.randrange(10, 4000))), "f": round(rng.random() * 3, 3)}
    a, b = rng.sample(WORDS, 2)
    return rng.choice(_ASIDES).format(a=a, b=b, end=rng.choice(_ENDINGS), **numbers)
