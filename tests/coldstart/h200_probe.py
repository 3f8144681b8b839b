import sys, json, os, collections, importlib.util, tempfile, time, traceback
sys.path.insert(0, "src")
import torch
from drkernel.tasks.generator import generate
from drkernel.tasks.module import Reference
from drkernel.coldstart.solutions import solutions
torch.set_default_device("cuda")
d = tempfile.mkdtemp(); n = 0
def load(src):
    global n; n += 1
    p = f"{d}/m{n}.py"; open(p, "w").write(src)
    spec = importlib.util.spec_from_file_location(f"m{n}", p); m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m); return m.ModelNew
flush = torch.empty(256 << 20, dtype=torch.uint8)
def timed(f, reps=7):
    for _ in range(2): f()
    ts = []
    for _ in range(reps):
        flush.zero_(); a = torch.cuda.Event(enable_timing=True); b = torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    return sorted(ts)[len(ts) // 2]
out = open(os.path.join(os.environ.get("OUT", "/tmp"), "speeds.jsonl"), "w")
t_end = time.time() + float(sys.argv[2])
rows = collections.defaultdict(list); bad = 0
for t in generate(sys.argv[1], 240, 7):
    if time.time() > t_end: break
    for size in ("small", "full"):
        r = Reference(t, t.small if size == "small" else None)
        m = r.model(1); x = r.inputs(2); args, kw = r.init_args()
        with torch.no_grad():
            for p in m.parameters(): p.add_(torch.randn_like(p) * 0.2)
            y = m(*x); ref = timed(lambda: m(*x)) if size == "full" else 0
            for s in solutions(t, 0):
                if s.kind == "hack": continue
                try:
                    new = load(s.source)(*args, **kw); new.load_state_dict(m.state_dict())
                    o = new(*x); e = ((o.double() - y.double()).norm() / y.double().norm()).item()
                    sp = ref / timed(lambda: new(*x)) if size == "full" else 0
                except Exception as ex:
                    e, sp = 9.0, 0; print("FAIL", t.id, s.kind, s.note, size, type(ex).__name__, str(ex)[-300:])
                if not e < 3e-5: bad += 1; print("WRONG", t.id, s.kind, s.note, size, e)
                if size == "full":
                    rows[t.family, s.kind + ":" + s.note].append(sp)
                    out.write(json.dumps([t.id, t.family, len(t.info["composition"]), list(t.info["shape"].values()), s.kind, s.note, ref, sp, e]) + "\n")
            del m, x, y
print("bad", bad)
for k, v in sorted(rows.items()): print(k, len(v), "min %.2f med %.2f max %.2f" % (min(v), sorted(v)[len(v) // 2], max(v)))
